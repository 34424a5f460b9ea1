-- ARGV: time, layout. Removes what is ready or delayed; returns how many.
local q, layout = KEYS[1], LAYOUTS[ARGV[2]]
layout.check(q)
local removed = redis.call('LLEN', q) + redis.call('ZCARD', q .. layout.delayed)
redis.call('UNLINK', q, q .. layout.delayed)
if layout.notifies then
  redis.call('UNLINK', q .. ':notify')
end
note(KEYS[2], layout, q)
return removed

-- ARGV: time, layout. Removes ready and delayed messages; returns their number.
local q, layout = KEYS[1], LAYOUTS[ARGV[2]]
layout.check(q)
local removed = redis.call('LLEN', q) + redis.call('ZCARD', q .. layout.delayed)
redis.call('UNLINK', q, q .. layout.delayed)
if layout.notifies then
  redis.call('UNLINK', q .. ':notify')
end
note(KEYS[2], layout, q)
return removed

-- ARGV: time, layout. Removes all records; returns their number.
local q, layout = KEYS[1], LAYOUTS[ARGV[2]]
local target = q .. '.dlq'
local removed = redis.call('LLEN', target)
redis.call('UNLINK', target)
if layout.notifies then
  redis.call('UNLINK', target .. ':notify')
end
return removed

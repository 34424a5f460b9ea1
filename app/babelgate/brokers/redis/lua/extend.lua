-- ARGV: time, layout, lease seconds, handles. Returns each new deadline in microseconds, 0 for a lost lease. The handle
-- does not change: <q>:babelgate:extended has the new deadline of its lease.
local q, layout = KEYS[1], LAYOUTS[ARGV[2]]
local moved, deadline, deadlines = q .. ':babelgate:extended', after(ARGV[3]), {}
layout.check(q)
redis.call('HLEN', moved)
write_at_maxmemory(q .. layout.leases)
for i = 4, #ARGV do
  local id, micros = parse(ARGV[i])
  local member = locate(layout, q, id, micros)
  if member then
    local moment = deadline + i - 4
    redis.call('ZADD', q .. layout.leases, score(moment), member)
    redis.call('HSET', moved, id, text(moment))
    deadlines[i - 3] = text(moment)
  else
    deadlines[i - 3] = '0'
  end
end
-- The sweeps of other programs do not clean this key, so it expires by itself.
local lasts = math.ceil((deadline - now + TOMBSTONE) / 1000000)
if redis.call('TTL', moved) < lasts then
  redis.call('EXPIRE', moved, lasts)
end
note(KEYS[2], layout, q)
return deadlines

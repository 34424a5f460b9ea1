-- Makes due messages and expired leases ready, with or without receivers. KEYS[1] is the index; ARGV: time, queues per
-- call, messages per queue, then queues (layout:ready list) to check although they may be missing in the index. Returns
-- the microseconds until the next due time, or -1 when nothing is due later.
local index = KEYS[1]
write_at_maxmemory(index)
for i = 4, #ARGV do
  local layout, q = string.match(ARGV[i], '^(%a+):(.*)$')
  pcall(note, index, LAYOUTS[layout], q)
end
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', NOW, 'LIMIT', 0, ARGV[2])) do
  local name, q = string.match(entry, '^(%a+):(.*)$')
  local layout = LAYOUTS[name]
  local ok = layout and pcall(function()
    layout.check(q)
    layout.promote(q, ARGV[3])
    layout.sweep(q, ARGV[3])
    note(index, layout, q)
  end)
  if not ok then
    -- A key of a wrong type is tried again in a minute, so that it does not delay other queues.
    redis.call('ZADD', index, score(now + 60000000), entry)
  end
end
local first = redis.call('ZRANGE', index, 0, 0, 'WITHSCORES')
if not first[2] then
  return -1
end
return math.max(0, math.ceil(tonumber(first[2]) * 1000000 - now))

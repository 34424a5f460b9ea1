-- ARGV: time, limit, lease seconds, batch, and 32 hex digits for each message. Returns the first deadline in microseconds
-- (each next one is a microsecond later, so that a score finds one lease), the elements, and their counts
-- of expiries, if any: negative where the last one has been reported.
local q, limit, blob = KEYS[1], tonumber(ARGV[2]), ARGV[5]
list.check(q)
write_at_maxmemory(q .. list.leases)
list.sweep(q, tonumber(ARGV[4]))
list.promote(q, tonumber(ARGV[4]))
local elements = redis.call('LPOP', q, limit)
if not elements then
  note(KEYS[2], list, q)
  return false
end
local deadline = after(ARGV[3])
local leases = {}
for i, element in ipairs(elements) do
  leases[2 * i - 1] = score(deadline + i - 1)
  leases[2 * i] = string.sub(blob, 32 * i - 31, 32 * i) .. ':' .. element
end
spread(elements, 'RPUSH', q .. ':processing')
spread(leases, 'ZADD', q .. list.leases)
local counts = {}
if list.counts(q) then
  for i, element in ipairs(elements) do
    counts[i] = list.expired_count(q, element)
  end
end
note_leases(KEYS[2], list, q, deadline)
return {text(deadline), elements, counts}

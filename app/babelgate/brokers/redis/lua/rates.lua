-- Rates that processes share. KEYS[1]: the prefix of their keys. ARGV: time, then by rate its name, what was taken in
-- microseconds of the rate, and the microseconds in which an empty bucket fills. The value of a key is the time at which
-- the bucket is empty. Returns for each the microseconds until then.
local found = {}
for i = 2, #ARGV, 3 do
  local key, span = KEYS[1] .. ':' .. ARGV[i], tonumber(ARGV[i + 2])
  local empty = math.max(tonumber(redis.call('GET', key) or '0'), now - span) + tonumber(ARGV[i + 1])
  redis.call('SET', key, text(empty), 'PX', math.ceil((empty + span - now) / 1000) + 1000)
  found[#found + 1] = text(empty - now)
end
return found

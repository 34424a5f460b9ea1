-- Numbers at a time that processes share, such as leases. KEYS[1]: the prefix of their keys. ARGV: time, the process, the
-- microseconds after which a process that says nothing counts no more, then by number its name, how many the process has,
-- the limit of all, and whether the process may soon have more (1 or 0).
-- A key has a field for each process: how many it may have, how many it has, until when it counts, whether it may have
-- more. Returns for each number how many the process may have, and how many the others have.
local process, patience = ARGV[2], tonumber(ARGV[3])
local found = {}
for i = 4, #ARGV, 4 do
  local key = KEYS[1] .. ':' .. ARGV[i]
  local own, most, active = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), ARGV[i + 3] == '1'
  local granted, used, processes = 0, 0, 1
  local fields = redis.call('HGETALL', key)
  for j = 1, #fields, 2 do
    if fields[j] ~= process then
      local grant, has, ends, is_active = string.match(fields[j + 1], '^(%d+) (%d+) (%d+) (%d)$')
      if tonumber(ends) <= now then
        redis.call('HDEL', key, fields[j])
      else
        granted, used = granted + tonumber(grant), used + tonumber(has)
        processes = processes + tonumber(is_active)
      end
    end
  end
  local grant = own
  if used + own > most then
    -- All processes go down together.
    grant = own - math.ceil((used + own - most) / processes)
  elseif active and used + own < most then
    -- One more is for a process whose part others have and do not use: all together have at most one beyond the limit
    -- for each further process, once each has the answer to its last call.
    local share = math.floor((most - own - granted) / processes)
    grant = math.max(own + share, math.min(own + 1, most - granted + processes - 1), 0)
  end
  if own == 0 and not active then
    redis.call('HDEL', key, process)
  else
    local kept = text(math.max(grant, own)) .. ' ' .. text(own) .. ' ' .. text(now + patience)
    redis.call('HSET', key, process, kept .. ' ' .. (active and '1' or '0'))
    redis.call('EXPIRE', key, math.ceil(patience / 1000000) + 1)
  end
  found[#found + 1] = grant
  found[#found + 1] = used
end
return found

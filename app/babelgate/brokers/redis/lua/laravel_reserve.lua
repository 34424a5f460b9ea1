-- ARGV: time, limit, lease seconds, batch, and '1' to leave the jobs of Laravel. Returns the first deadline in microseconds
-- (each next one is a microsecond later), the jobs as they were queued, of each reserved member its SHA-1 and the
-- position of its attempts, and the number of jobs that were left where they were. That number is kept for a minute.
local LOOKED_AT = 100
local q, limit = KEYS[1], tonumber(ARGV[2])
laravel.check(q)
write_at_maxmemory(q .. laravel.leases)
laravel.promote(q, tonumber(ARGV[4]))
laravel.sweep(q, tonumber(ARGV[4]))
local jobs, contents, left = {}, {}, {}
local asked, taken
repeat
  asked = limit - #jobs
  taken = redis.call('LPOP', q, asked) or {}
  for _, job in ipairs(taken) do
    local decoded = decoded_of(job)
    if ARGV[5] == '1' and foreign(decoded) then
      left[#left + 1] = job
    else
      jobs[#jobs + 1], contents[#jobs + 1] = job, decoded
    end
  end
until #taken < asked or #jobs == limit or #left >= LOOKED_AT
if #jobs == 0 and #left >= LOOKED_AT then
  -- Ours may be behind them: the next call looks there.
  spread(left, 'RPUSH', q)
else
  local heads = {}
  for i = #left, 1, -1 do
    heads[#heads + 1] = left[i]
  end
  spread(heads, 'LPUSH', q)
end
if #left > 0 then
  redis.call('SET', q .. ':babelgate:foreign', #left, 'EX', 60)
end
if #jobs == 0 then
  note(KEYS[2], laravel, q)
  return {'0', {}, {}, {}, #left}
end
local deadline = after(ARGV[3])
local leases, ids, places = {}, {}, {}
for i, job in ipairs(jobs) do
  local member, place = counted(job, contents[i])
  leases[2 * i - 1] = score(deadline + i - 1)
  leases[2 * i] = member
  ids[i] = redis.sha1hex(member)
  places[i] = place
end
spread(leases, 'ZADD', q .. laravel.leases)
redis.call('LPOP', q .. ':notify', #jobs)
note_leases(KEYS[2], laravel, q, deadline)
return {text(deadline), jobs, ids, places, #left}

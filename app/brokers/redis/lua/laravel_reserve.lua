-- ARGV: time, limit, lease seconds, batch. Returns the first deadline in microseconds (each next one is a microsecond
-- later), the jobs as they were queued, and of each reserved member its SHA-1 and the position of its attempts.
local q = KEYS[1]
laravel.check(q)
laravel.promote(q, tonumber(ARGV[4]))
laravel.sweep(q, tonumber(ARGV[4]))
local jobs = redis.call('LPOP', q, ARGV[2])
if not jobs then
  note(KEYS[2], laravel, q)
  return false
end
local deadline = after(ARGV[3])
local leases, ids, places = {}, {}, {}
for i, job in ipairs(jobs) do
  local member, place = counted(job)
  leases[2 * i - 1] = score(deadline + i - 1)
  leases[2 * i] = member
  ids[i] = redis.sha1hex(member)
  places[i] = place
end
spread(leases, 'ZADD', q .. laravel.leases)
redis.call('LPOP', q .. ':notify', #jobs)
note(KEYS[2], laravel, q)
return {text(deadline), jobs, ids, places}

-- ARGV: time, jobs. Appends the jobs, and a wake-up token for each.
local jobs, tokens = {}, {}
for i = 2, #ARGV do
  jobs[i - 1] = ARGV[i]
  tokens[i - 1] = 1
end
laravel.check(KEYS[1])
spread(jobs, 'RPUSH', KEYS[1])
spread(tokens, 'RPUSH', KEYS[1] .. ':notify')
return #jobs

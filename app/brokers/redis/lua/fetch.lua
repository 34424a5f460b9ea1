-- ARGV: time, layout, handles. Returns for each what is stored under its lease and its count of expiries; false and 0
-- where the lease is gone.
local q, layout = KEYS[1], LAYOUTS[ARGV[2]]
local counts, found = layout.counts(q), {}
for i = 3, #ARGV do
  local member = locate(layout, q, parse(ARGV[i]))
  local stored = member and layout.stored(member)
  found[#found + 1] = stored
  found[#found + 1] = stored and counts and math.abs(layout.expired_count(q, stored)) or 0
end
return found

-- ARGV: time, layout, handles. Returns for each the leased element and its count of expiries; false and 0 for a lost
-- lease.
local q, layout = KEYS[1], LAYOUTS[ARGV[2]]
local counts, found = layout.counts(q), {}
for i = 3, #ARGV do
  local member = locate(layout, q, parse(ARGV[i]))
  local stored = member and layout.stored(member)
  found[#found + 1] = stored
  found[#found + 1] = stored and counts and math.abs(layout.expired_count(q, stored)) or 0
end
return found

-- The first part of every script. KEYS[1] is a queue's ready list, KEYS[2] the index of the queues with due items. The
-- queue's other keys are derived from the first, which a cluster does not allow: clusters are refused.
-- ARGV[1] is the time in seconds, or empty for the server's clock.

-- Microseconds. A time given in ARGV has whole seconds, as in the contract of the layouts.
local whole = ARGV[1] ~= ''
local now
if whole then
  now = math.floor(tonumber(ARGV[1])) * 1000000
else
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local TOMBSTONE = 60 * 1000000
local COUNT_SECONDS = 7 * 24 * 3600
local CHUNK = 500

-- The moment some seconds from now, in microseconds.
local function after(seconds)
  seconds = tonumber(seconds)
  if whole then
    return now + math.ceil(seconds) * 1000000
  end
  return now + math.floor(seconds * 1000000)
end

-- A moment as a sorted set's score, in seconds; Lua's own tostring would lose digits.
local function score(micros)
  return string.format('%.17g', micros / 1000000)
end

local NOW = score(now)

local function text(micros)
  return string.format('%.0f', micros)
end

-- Begins the writes of a script that takes about as much memory as it frees: `key` is a sorted set, which stays as it is.
-- At maxmemory a server refuses the commands of a script that may take memory, until the script has written something:
-- https://github.com/redis/redis/blob/7.0.15/src/script.c#L370 and, for 6.2, src/scripting.c. A full server so still ends
-- and extends leases, and delivers what it holds. Scripts that add messages do not call this.
local function write_at_maxmemory(key)
  redis.call('ZREM', key, '')
end

-- Calls a variadic command with `list` after `...`, in pieces that fit Lua's stack, each of an even number of arguments.
local function spread(list, ...)
  for from = 1, #list, CHUNK do
    local command = {...}
    for i = from, math.min(from + CHUNK - 1, #list) do
      command[#command + 1] = list[i]
    end
    redis.call(unpack(command))
  end
end

-- The content of a handle: an id of hex digits, and the lease's deadline in microseconds.
local function parse(handle)
  local id, micros = string.match(handle, '^(%x+):(%d+)')
  return id, tonumber(micros)
end

-- The member of a valid lease, its deadline, and whether an extend has moved it; false for a lost lease. A lease ends at
-- its deadline, also before a sweep has removed it.
local function locate(layout, q, id, micros)
  if not id then
    return false
  end
  local member, deadline, extended = layout.find(q, id, micros), micros, false
  if not member then
    deadline, extended = tonumber(redis.call('HGET', q .. ':babelgate:extended', id) or 0), true
    member = deadline > now and layout.find(q, id, deadline)
  end
  if member and deadline > now then
    return member, deadline, extended
  end
  return false
end

-- Writes the earliest due time of this queue to the index.
local function note(index, layout, q)
  local earliest, written
  for _, key in ipairs({q .. layout.leases, q .. layout.delayed}) do
    local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
    local due = tonumber(first[2])
    -- A lease without end, which only other programs write, is never due.
    if due and due < math.huge and (not earliest or due < earliest) then
      earliest, written = due, first[2]
    end
  end
  if earliest then
    redis.call('ZADD', index, written, layout.name .. ':' .. q)
  else
    redis.call('ZREM', index, layout.name .. ':' .. q)
  end
end

-- The same after a reserve, whose first lease ends at `deadline`: an entry that is not later stays. Where it is too early,
-- because its lease was settled, the queue is visited once for nothing.
local function note_leases(index, layout, q, deadline)
  local due = redis.call('ZSCORE', index, layout.name .. ':' .. q)
  if not due or tonumber(due) > deadline / 1000000 then
    note(index, layout, q)
  end
end

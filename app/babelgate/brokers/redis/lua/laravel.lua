-- Laravel's layout: <q>, <q>:delayed, <q>:reserved and <q>:notify, where a reserved member counts one more attempt.

local laravel = {
  name = 'laravel',
  leases = ':reserved',
  delayed = ':delayed',
  notifies = true,
}

function laravel.stored(member)
  return member
end

function laravel.delayed_member(_, body)
  return body
end

function laravel.check(q)
  redis.call('LLEN', q)
  redis.call('LLEN', q .. ':notify')
  redis.call('LLEN', q .. '.dlq')
  redis.call('LLEN', q .. '.dlq:notify')
  redis.call('ZCARD', q .. laravel.leases)
  redis.call('ZCARD', q .. laravel.delayed)
end

function laravel.find(q, id, micros)
  local at = score(micros)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', q .. laravel.leases, at, at)) do
    if redis.sha1hex(member) == id then
      return member
    end
  end
  return false
end

function laravel.remove(q, member)
  redis.call('ZREM', q .. laravel.leases, member)
end

-- This layout counts attempts in the body.
function laravel.counts()
  return false
end

local function migrate(q, from, batch)
  local due = redis.call('ZRANGEBYSCORE', from, '-inf', NOW, 'LIMIT', 0, batch)
  local tokens = {}
  for i = 1, #due do
    tokens[i] = 1
  end
  spread(due, 'RPUSH', q)
  spread(tokens, 'RPUSH', q .. ':notify')
  spread(due, 'ZREM', from)
  return due
end

function laravel.promote(q, batch)
  return #migrate(q, q .. laravel.delayed, batch)
end

function laravel.sweep(q, batch)
  local expired = migrate(q, q .. laravel.leases, batch)
  if #expired > 0 and redis.call('EXISTS', q .. ':babelgate:extended') == 1 then
    for _, member in ipairs(expired) do
      redis.call('HDEL', q .. ':babelgate:extended', redis.sha1hex(member))
    end
  end
  return #expired
end

-- What a job says; nil if it is no JSON.
local function decoded_of(job)
  local ok, decoded = pcall(cjson.decode, job)
  return ok and decoded or nil
end

-- Whether this is a job that Laravel itself has queued: Illuminate\Queue\Queue::createPayload gives each a displayName.
local function foreign(decoded)
  return type(decoded) == 'table' and type(decoded.job) == 'string' and type(decoded.displayName) == 'string'
    and type(decoded.meta) ~= 'table'
end

-- The reserved member of a job, and the position of the digits of its attempts: 0 when the member is the job itself (it
-- cannot be decoded, or not encoded again), -1 when cjson has written it. Changing only the digits keeps what cjson would
-- damage: key order, big integers, empty arrays.
local function counted(job, decoded)
  if type(decoded) ~= 'table' or type(decoded.attempts) ~= 'number' then
    return job, 0
  end
  local attempts = decoded.attempts
  decoded.attempts = attempts + 1
  local encodable, encoded = pcall(cjson.encode, decoded)
  if not encodable then
    return job, 0
  end
  local from, digits = 1, text(attempts)
  for _ = 1, 16 do
    local start, stop, literal = string.find(job, '"attempts"%s*:%s*(%d+)', from)
    if not start then
      break
    end
    if literal == digits then
      local before = string.sub(job, 1, stop - #literal)
      local spliced = before .. text(attempts + 1) .. string.sub(job, stop + 1)
      local sound, again = pcall(cjson.decode, spliced)
      -- A nested key of the same name was changed: the count of the top level is still the old one.
      if sound and again.attempts == attempts + 1 then
        return spliced, #before + 1
      end
    end
    from = stop + 1
  end
  return encoded, -1
end

local LAYOUTS = {list = list, laravel = laravel}

--- @include "time"
--- @include "lease"
-- Leases of permits consist of a sorted set of ids by their expiry in ms, and a hash. The hash
-- contains the record of each lease, and the sum of all permits under `used`. The sorted set is
-- authoritative. It expires with its last lease, and the hash expires later. The hash also contains
-- the holders that were asked individually to finish.

-- Returns the field of the hash that exists while the holder with this id is asked to finish.
local function asked(id)
  return 'asked ' .. id
end

-- Notifies all holders of permits by a value of the revocation key that does not ask any of them.
local function alert(revoke, left)
  if redis.pcall('GET', revoke) ~= '1' then
    redis.pcall('SET', revoke, '0', 'PX', digits(left))
  end
end

-- Removes the expired leases with these ids.
local function end_leases(held, units, ids)
  local freed = 0
  for _, record in ipairs(redis.call('HMGET', units, unpack(ids))) do
    freed = freed + (units_of(record) or 0)
  end
  redis.call('ZREM', held, unpack(ids))
  redis.call('HDEL', units, unpack(ids))
  local requests = {}
  for n, id in ipairs(ids) do
    requests[n] = asked(id)
  end
  redis.call('HDEL', units, unpack(requests))
  if freed > 0 then
    redis.call('HINCRBY', units, 'used', digits(-freed))
  end
end

-- Returns the number of permits in use. Removes a limited number of expired leases. If there are
-- more, their permits still count as in use.
local function in_use(held, units, now)
  local gone = redis.call('ZRANGEBYSCORE', held, '-inf', digits(now), 'LIMIT', 0, 128)
  if #gone > 0 then
    end_leases(held, units, gone)
  end
  if redis.call('ZCARD', held) == 0 then
    redis.call('DEL', units)
    return 0
  end
  -- Another program has deleted the hash. Until the leases expire, no permit is known to be free.
  return tonumber(redis.call('HGET', units, 'used') or math.huge)
end

-- Returns when the last lease expires, if there is one.
local function last_end(held, now)
  local ends = tonumber(redis.call('ZRANGE', held, -1, -1, 'WITHSCORES')[2] or 0)
  return ends > now and ends or nil
end

-- Keeps the sorted set as long as the last lease, and the hash for longer.
local function keep(held, units, now)
  local left = (last_end(held, now) or now) - now
  redis.call('PEXPIRE', held, digits(left))
  redis.call('PEXPIRE', units, digits(left + 60000))
end

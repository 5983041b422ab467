--- @include "time"
--- @include "lease"
-- Leases of units are a sorted set of ids by when they end, in ms, and a hash with the record of each and the sum of their units under `used`.
-- The sorted set decides: it expires with its last lease, and the hash later. The hash also names the holders who alone are asked to finish.

-- The field of the hash that says that the holder with this id is asked to finish.
local function asked(id)
  return 'asked ' .. id
end

-- Tells all holders of units to look, by a value under the key for requests to revoke that asks none of them.
local function alert(revoke, left)
  if redis.pcall('GET', revoke) ~= '1' then
    redis.pcall('SET', revoke, '0', 'PX', digits(left))
  end
end

-- Ends the leases with these ids, whose time is up.
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

-- How many units are in use. Ends leases whose time is up, a bounded number at a time: while there are more, their units count as in
-- use.
local function in_use(held, units, now)
  local gone = redis.call('ZRANGEBYSCORE', held, '-inf', digits(now), 'LIMIT', 0, 128)
  if #gone > 0 then
    end_leases(held, units, gone)
  end
  if redis.call('ZCARD', held) == 0 then
    redis.call('DEL', units)
    return 0
  end
  -- Another program has deleted the hash: until the leases end, no unit is known to be free.
  return tonumber(redis.call('HGET', units, 'used') or math.huge)
end

-- When the last lease ends, if any is in force.
local function last_end(held, now)
  local ends = tonumber(redis.call('ZRANGE', held, -1, -1, 'WITHSCORES')[2] or 0)
  return ends > now and ends or nil
end

-- Keeps both as long as the last lease, and the hash beyond.
local function keep(held, units, now)
  local left = (last_end(held, now) or now) - now
  redis.call('PEXPIRE', held, digits(left))
  redis.call('PEXPIRE', units, digits(left + 60000))
end

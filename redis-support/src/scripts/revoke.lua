-- Asks holders of a key to finish early.
--
-- KEYS  lock, held, units, revoke, contended
-- ARGV  the fingerprint of the holder's lease (empty: all holders)
-- Returns  1: the holders are asked; 0: the key is free, or no lease has the fingerprint
local lock, held, units, revoke, contended = unpack(KEYS)
local wanted = ARGV[1]

--- @include "contended"
--- @include "units"
--- @include "meant"
local now = math.floor(clock() / 1000)
local value = redis.call('GET', lock)
if value and not is_meant(value, wanted) then
  return 0
end
if value then
  local left = redis.call('PTTL', lock)
  if left <= 0 then
    -- A lock without a TTL belongs to another program, which does not read revocation requests.
    return 1
  end
  mark(contended, lock, now + left, now)
  -- The request is only for the current holder, because the next holder has another value.
  redis.call('SET', revoke, value, 'PX', left)
  -- A write that changes nothing notifies the holder.
  redis.call('PEXPIRE', lock, left)
  return 1
end
local ends = last_end(held, now)
if not ends then
  return 0
end
mark(contended, lock, ends, now)
if wanted == '' then
  redis.call('SET', revoke, '1', 'PX', digits(ends - now))
  return 1
end
local id = meant_of_units(held, now, wanted)
if not id then
  return 0
end
redis.call('HSET', units, asked(id), '1')
alert(revoke, ends - now)
return 1

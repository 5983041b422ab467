-- Asks the holders of a key to finish early.
--
-- KEYS  lock, held, revoke, crowd
-- ARGV  none
-- Returns  1: they are asked; 0: the key is free
local lock, held, revoke, crowd = unpack(KEYS)

--- @include "crowd"
--- @include "units"
local now = math.floor(clock() / 1000)
local value = redis.call('GET', lock)
if value then
  local left = redis.call('PTTL', lock)
  if left <= 0 then
    -- A lock for ever is another client's, which does not ask.
    return 1
  end
  mark(crowd, lock, now + left, now)
  -- For this very holder: the next one has another value.
  redis.call('SET', revoke, value, 'PX', left)
  -- A write that changes nothing tells the holder to look.
  redis.call('PEXPIRE', lock, left)
  return 1
end
local ends = last_end(held, now)
if not ends then
  return 0
end
mark(crowd, lock, ends, now)
redis.call('SET', revoke, '1', 'PX', digits(ends - now))
return 1

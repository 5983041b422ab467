-- KEYS: lock, held, revoke, crowd. 1: the holders of the key are asked to finish. 0: the key is free.
local value = redis.call('GET', KEYS[1])
if value then
  local left = redis.call('PTTL', KEYS[1])
  if left <= 0 then
    -- A lock for ever is another client's, which does not ask.
    return 1
  end
  local now = math.floor(clock() / 1000)
  mark(KEYS[4], KEYS[1], now + left, now)
  -- For this very holder: the next one has another value.
  redis.call('SET', KEYS[3], value, 'PX', left)
  -- A write that changes nothing tells the holder to look.
  redis.call('PEXPIRE', KEYS[1], left)
  return 1
end
local now = math.floor(clock() / 1000)
local ends = last_end(KEYS[2], now)
if not ends then
  return 0
end
mark(KEYS[4], KEYS[1], ends, now)
redis.call('SET', KEYS[3], '1', 'PX', digits(ends - now))
return 1

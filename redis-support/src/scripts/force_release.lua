-- KEYS: lock, fence, held, units, news, revoke, queue, places.
-- As `inspect`, with the first token of later grants, or nil.
local value = redis.call('GET', KEYS[1])
local micros = clock()
local now = math.floor(micros / 1000)
local reply = {false}
if value then
  reply = {false, string.sub(value, 1, 512), redis.call('PTTL', KEYS[1])}
elseif last_end(KEYS[3], now) then
  reply = list(KEYS[3], KEYS[4], now, {false, in_use(KEYS[3], KEYS[4], now)})
else
  return {false, false, 0}
end

-- The token moves on, so that a resource can be told to refuse the former holders. When memory is
-- full that fails, and the lock is released all the same.
local last = redis.pcall('GET', KEYS[2])
local token = type(last) ~= 'table' and next_token(last, micros)
if token and redis.pcall('SET', KEYS[2], digits(token)).ok then
  reply[1] = digits(token)
end

-- Holders of units learn of it through the key for requests to revoke.
redis.pcall('SET', KEYS[6], '1')
-- To free the records of many holders takes a while.
redis.call('UNLINK', KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
call_up(KEYS[7], KEYS[8], KEYS[5], 0, 1, now)
return reply

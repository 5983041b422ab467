-- Ends all leases in force on a key.
--
-- KEYS  those of `inspect`, revoke
-- ARGV  none
-- Returns  the holders as `inspect` does, with the first token of later grants, or nil, in place of the last one
local lock, fence, held, units, news, queue, places, revoke = unpack(KEYS)

--- @include "token"
--- @include "turn"
--- @include "units"
--- @include "list"
local value = redis.call('GET', lock)
local micros = clock()
local now = math.floor(micros / 1000)
local reply
if value then
  reply = {false, string.sub(value, 1, 512), redis.call('PTTL', lock)}
elseif last_end(held, now) then
  reply = list(held, units, now, {false, in_use(held, units, now)})
else
  return {false, false, 0}
end

-- The token moves on, so that a resource can be told to refuse the former holders. When memory is
-- full that fails, and the lock is released all the same.
local last = redis.pcall('GET', fence)
local token = type(last) ~= 'table' and next_token(last, token_at(micros))
if token and redis.pcall('SET', fence, digits(token)).ok then
  reply[1] = digits(token)
end

-- Holders of units learn of it through the key for requests to revoke.
redis.pcall('SET', revoke, '1')
-- To free the records of many holders takes a while.
redis.call('UNLINK', lock, held, units, news, revoke)
call_up(queue, places, news, 0, 1, now)
return reply

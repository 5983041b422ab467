-- Revokes leases of a key.
--
-- KEYS  as in `inspect`, revoke
-- ARGV  the fingerprint of the lease (empty: all leases)
-- Returns  the holders as in `inspect`, with the first token of later grants instead of the last
--          token. It is nil if there is no such token, or if other leases remain
local lock, fence, held, units, news, queue, places, revoke = unpack(KEYS)
local wanted = ARGV[1]

--- @include "token"
--- @include "turn"
--- @include "units"
--- @include "list"
--- @include "meant"
local value = redis.call('GET', lock)
local micros = clock()
local now = math.floor(micros / 1000)
local reply
if value and is_meant(value, wanted) then
  reply = {false, string.sub(value, 1, 512), redis.call('PTTL', lock)}
elseif not value and last_end(held, now) then
  local id, ends = nil, nil
  if wanted ~= '' then
    id, ends = meant_of_units(held, now, wanted)
  end
  local used = in_use(held, units, now)
  if id and redis.call('ZCARD', held) > 1 then
    -- All other holders keep their leases.
    local record = redis.call('HGET', units, id)
    reply = {false, used, id, ends - now, record and {cmsgpack.unpack(record)}}
    end_leases(held, units, {id})
    keep(held, units, now)
    alert(revoke, ends - now)
    redis.call('DEL', news)
    call_up(queue, places, news, in_use(held, units, now), 1, now)
    return reply
  elseif id or wanted == '' then
    reply = list(held, units, now, {false, used})
  end
end
if not reply then
  return {false, false, 0}
end

-- The token is increased, so that a resource can reject the former holders. If the memory is full,
-- this fails, and the lock is released nevertheless.
local last = redis.pcall('GET', fence)
local token = type(last) ~= 'table' and next_token(last, token_at(micros))
if token and redis.pcall('SET', fence, digits(token)).ok then
  reply[1] = digits(token)
end

-- Holders of permits are notified through the key for revocation requests.
redis.pcall('SET', revoke, '1')
-- Freeing the records of many holders takes time, so the server does it in the background.
redis.call('UNLINK', lock, held, units, news, revoke)
call_up(queue, places, news, 0, 1, now)
return reply

-- Renews permits, and returns some of them if the new number is smaller.
--
-- KEYS  held, units; optionally: queue, places, news, revoke, lock, contended
-- ARGV  id, TTL in ms, number of permits, description
-- Returns  1: renewed; 2: renewed, and the holder is asked to finish; 0: the key is free; -1: other
--          leases are in force. The ids of the woken claims may follow.
local held, units, queue, places, news, revoke, lock, contended = unpack(KEYS)
local id, ttl, wants, description = unpack(ARGV)

--- @include "contended"
--- @include "units"
local now = math.floor(clock() / 1000)
local ends = tonumber(redis.call('ZSCORE', held, id) or 0)
if ends <= now then
  return last_end(held, now) and -1 or 0
end

-- This write works when the memory is full. After it, all later writes work too, because the server
-- never ends a script halfway.
redis.call('PEXPIRE', held, ttl)
if contended then
  mark(contended, lock, now + ttl, now)
end
redis.call('ZADD', held, 'XX', digits(now + ttl), id)
keep(held, units, now)

local before, is_asked = unpack(redis.call('HMGET', units, id, asked(id)))
-- Read last, so that the server notifies this connection of a revocation request.
local function outcome()
  return revoke and redis.call('GET', revoke) == '1' and 2 or is_asked and 2 or 1
end

if not before then
  return outcome()
end
local had, limit, token = cmsgpack.unpack(before)
local has = math.min(had, tonumber(wants))
local after = write_lease(has, limit, token, description)
if after == before then
  return outcome()
end
redis.call('HSET', units, id, after)
local used = redis.call('HINCRBY', units, 'used', digits(has - had))
if news then
  redis.call('DEL', news)
end
if not news or has == had then
  return outcome()
end
--- @include "turn"
local called = call_up(queue, places, news, used, 1, now)
return with_called(outcome(), called)

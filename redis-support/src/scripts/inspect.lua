-- Returns the holders of a key and its waiters.
--
-- KEYS  lock, fence, held, units, news, queue, places
-- ARGV  none
-- Returns  {holders, the clock in µs, number of waiters, id, {when its queue entry expires,
--          permits, limit, value or ''}, …} for the first waiters. The holders are {last token or
--          nil, value of a mutex or nil, its remaining TTL in ms (negative: no TTL)}, or {last
--          token or nil, permits in use, id, remaining TTL in ms, its record, …} for the leases
--          that expire first.
local lock, fence, held, units, news, queue, places = unpack(KEYS)

--- @include "place"
--- @include "news"
--- @include "units"
--- @include "list"
local value, token = redis.call('GET', lock), redis.call('GET', fence)
local micros = clock()
local now = math.floor(micros / 1000)
local reply = {false, digits(micros), redis.call('ZCARD', queue)}
local waiting = redis.call('ZRANGE', queue, 0, 127)
if waiting[1] then
  for i, record in ipairs(redis.call('HMGET', places, unpack(waiting))) do
    local ends, wants, limit, _, _, of_lock = read_place(record)
    reply[#reply + 1] = waiting[i]
    reply[#reply + 1] = {ends, wants or 0, limit or 0, of_lock or ''}
  end
end
-- Observers wait for the notification key. Observers of a held mutex wait for a change of the
-- mutex.
if not value then
  await_news(news)
end
if value or not last_end(held, now) then
  reply[1] = {token, value and string.sub(value, 1, 512), redis.call('PTTL', lock)}
else
  reply[1] = list(held, units, now, {token, in_use(held, units, now)})
end
return reply

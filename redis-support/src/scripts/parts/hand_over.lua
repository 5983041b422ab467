--- @include "turn"
--- @include "give_way"
--- @include "token"

-- Returns the first claim in the queue, and the next one, which tries when the entry of the first
-- one expires.
local function front(queue)
  return redis.call('ZRANGE', queue, 0, 1)
end

-- `Patience::RESERVATION` in ms. If the server was contacted by a claim within this time, the
-- reservation grants the lock for this time, because the client may be dead. If the client is
-- alive, it renews the lease.
local RESERVATION = 250

-- Chooses the token of a reserved grant. Returns the words of the reservation after the id: the
-- token, the number of spare tokens, the time of the request on the client's clock, and the µs from
-- this request to the grant. Returns nil if there is no token.
local function grant_words(fence, micros, asked, stamp, spare)
  local numbered, token, more = pcall(number_grant, fence, micros, spare)
  if not numbered or not token then
    return nil
  end
  if more > 0 then
    -- Another attempt of the claim may be on its way and may be granted the lock too. It gets the
    -- other half of the spare tokens.
    more = math.floor(more / 2)
    redis.pcall('SET', fence, digits(token + more))
  end
  return table.concat({'', digits(token), digits(more), stamp, digits(micros - asked)}, ' ')
end

-- Makes the first claim in the queue that listens to reservations the holder. If the claim
-- contacted the server recently, it is granted the lock for a short time, and its client requests
-- the rest. For any other claim, the key is reserved as long as a free key would be, and the claim
-- must ask. A claim that nobody listens for is skipped, and its queue entry is removed. Returns
-- false if the first claim does not support reservations or if the key is left to other clients.
-- The first claim is then notified that the key is free.
--
-- ids     the front of the queue
-- Returns  whether the key is reserved; then the next claim and the record of its queue entry, each
--          as a list
--
-- Uses only commands that work when the memory is full.
local function hand_over(lock, fence, queue, places, ids, micros)
  local now = math.floor(micros / 1000)
  for _ = 1, 128 do
    local first = ids[1]
    if not first then
      return false
    end
    local records = redis.call('HMGET', places, OTHERS, unpack(ids))
    local ends, _, _, patience, channel, value, asked, stamp, ttl, spare = read_place(records[2])
    if ends > now then
      if not channel or channel == '-' or give_way(queue, places, records[1], now) then
        return false
      end
      local grant = asked and micros - asked < RESERVATION * 1000 and grant_words(fence, micros, asked, stamp, spare)
      local time = patience > 0 and math.min(patience, ends - now) or ends - now
      if grant then
        time = math.min(tonumber(ttl), RESERVATION)
      end
      local kept = redis.pcall('SET', lock, value, 'PX', digits(time))
      if type(kept) == 'table' and kept.err then
        return false
      end
      local told = redis.pcall('PUBLISH', channel, first .. (grant or ''))
      if type(told) ~= 'number' then
        -- The claim may not be notified.
        return false
      end
      forget(queue, places, {first}, ids[2])
      if told > 0 then
        return true, {ids[2]}, {records[3]}
      end
    else
      forget(queue, places, {first}, ids[2])
    end
    ids = front(queue)
  end
  return false
end

--- @include "turn"
--- @include "give_way"
--- @include "token"

-- The first in the queue, and the next, which looks when the place of the first ends.
local function front(queue)
  return redis.call('ZRANGE', queue, 0, 1)
end

-- `Patience::RESERVATION`, in ms. A claim that the server has heard of within this time is granted the lock by the offer, and for this time: its
-- client may be dead. Otherwise the client renews the lease.
local RESERVATION = 250

-- Numbers the grant of a lock by an offer. Returns the words of the offer that follow the id: the token, the number of spare tokens, when the
-- client asked by its own clock, and how many µs before the grant the server heard that. Nil if there is no token.
local function grant_words(fence, micros, asked, stamp, spare)
  local numbered, token, more = pcall(number_grant, fence, micros, spare)
  if not numbered or not token then
    return nil
  end
  if more > 0 then
    -- An attempt of the claim may be on its way, and be granted the lock at once: it finds the other half of the spare tokens.
    more = math.floor(more / 2)
    redis.pcall('SET', fence, digits(token + more))
  end
  return table.concat({'', digits(token), digits(more), stamp, digits(micros - asked)}, ' ')
end

-- Offers the key to the first in the queue that hears of it over its connection, as its holder. A claim that the server has heard of lately is
-- granted the lock for a short time, and its client asks for the rest. For any other the key is kept for as long as a free key is kept for it:
-- meanwhile it asks. A claim that nothing listens for is passed by, and its place is given up. False if the first does not hear of such things, or the key is left to others:
-- then the first is told that it is free.
--
-- ids     the front of the queue
-- Returns  whether it is kept, and then the next claim and the record of its place, each as a list
-- Needs no command that fails when memory is full.
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
        -- It may not be told.
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

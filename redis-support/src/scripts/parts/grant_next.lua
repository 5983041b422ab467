--- @include "turn"
--- @include "yield_to_foreign_client"

-- Returns the first claim in the queue, and the next one, which tries when the entry of the first
-- one expires.
local function front(queue)
  return redis.call('ZRANGE', queue, 0, 1)
end

-- Reserves the key for the first claim in the queue whose client listens on its channel, for as long
-- as a free key is reserved for a claim. The client then sends a request, which grants the lock for
-- its whole TTL. A claim whose client does not listen loses its queue entry. Returns false if the
-- first claim has no channel, or if the key is left to other programs. The caller then notifies the
-- first claim that the key is free.
--
-- ids     the front of the queue
-- Returns  whether the key is reserved, and then the next claim and its record, each as a list
-- Needs no command that fails when memory is full.
local function grant_next(lock, queue, places, ids, now)
  for _ = 1, 128 do
    local first = ids[1]
    if not first then
      return false
    end
    local records = redis.call('HMGET', places, OTHERS, unpack(ids))
    local ends, _, _, patience, channel, value = read_place(records[2])
    if ends > now then
      if not channel or channel == '-' or yield_to_foreign_client(queue, places, records[1], now) then
        return false
      end
      local kept = redis.pcall('SET', lock, value, 'PX', digits(math.min(patience, ends - now)))
      if type(kept) == 'table' and kept.err then
        return false
      end
      local listeners = redis.pcall('PUBLISH', channel, first)
      if type(listeners) ~= 'number' then
        -- Its user may not publish.
        return false
      end
      forget(queue, places, {first}, ids[2])
      if listeners > 0 then
        return true, {ids[2]}, {records[3]}
      end
    else
      forget(queue, places, {first}, ids[2])
    end
    ids = front(queue)
  end
  return false
end

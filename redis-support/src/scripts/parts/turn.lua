-- Who queues for a mutex has a key of its own, which is deleted when it is first: only then does it hear of the lock itself. So a
-- release wakes no crowd.

-- Deletes the key of the one who has this place now.
local function tell(queue, news, rank)
  local id = redis.call('ZRANGE', queue, rank, rank)[1]
  if id then
    -- Where keys are moved about it may fail, and it looks by itself.
    redis.pcall('DEL', news .. '#' .. id)
  end
end

-- `id`, which had this place, has gone.
local function move_up(queue, news, id, rank)
  redis.pcall('DEL', news .. '#' .. id)
  if rank == 0 then
    tell(queue, news, 0)
  end
end

-- The key is free, and the first in the queue is waited for no longer than it said: for how many ms, if it said so.
local function offer(queue, places, now)
  local first = redis.call('ZRANGE', queue, 0, 0)[1]
  local known = first and redis.call('HGET', places, first) or ''
  local ends, rest, time = string.match(known, '^(%d+)( %d+ (%d+).*)$')
  if time and now + time < tonumber(ends) then
    redis.pcall('HSET', places, first, digits(now + time) .. rest)
    return tonumber(time)
  end
end

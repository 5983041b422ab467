-- Who queues for a mutex has a key of its own, which is deleted when it is first: only then does it hear of the lock itself. So a
-- release wakes no crowd.

-- Deletes the keys of these.
local function tell(news, ids)
  for n, id in ipairs(ids) do
    ids[n] = news .. '#' .. id
  end
  if ids[1] then
    -- Where keys are moved about it may fail, and they look by themselves.
    redis.pcall('DEL', unpack(ids))
  end
end

-- The key is free, and the first in the queue is waited for no longer than it said: for how many ms, if it said so.
local function reserve(queue, places, now)
  local first = redis.call('ZRANGE', queue, 0, 0)[1]
  local known = first and redis.call('HGET', places, first) or ''
  local ends, rest, time = string.match(known, '^(%d+)( %d+ (%d+).*)$')
  if time and now + time < tonumber(ends) then
    redis.pcall('HSET', places, first, digits(now + time) .. rest)
    return tonumber(time)
  end
end

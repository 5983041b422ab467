-- A queue is a sorted set of ids in the order of their coming, and a hash with what is known of each:
-- until when its place is kept, how many units it wants, and, if it did not ask to be first come first served at any cost, for
-- how many ms it is waited for once the key is free; and then, if it can be told that it was made the holder: when it asked (in us), the
-- TTL of its lease (in ms), how many spare tokens it wants, the channel that it listens to, and the value of its lock.

-- Places that one attempt looks at. Those further back wait until they have come nearer.
local LOOKAHEAD = 128

-- The place of `id` from the front, or false. One that has ended is given up first.
local function place_of(queue, places, id, now)
  local place = redis.call('ZRANK', queue, id)
  if not place then
    return false
  end
  if tonumber(string.match(redis.call('HGET', places, id) or '0', '^%d+')) <= now then
    redis.call('ZREM', queue, id)
    redis.call('HDEL', places, id)
    return false
  end
  return place
end

-- How many units are wanted by those before the place `rank`, or by all if that is false, and in how many ms the first of their places
-- ends by itself. Clears places that have ended.
local function wanted_before(queue, places, rank, now)
  local count = rank or redis.call('ZCARD', queue)
  if count == 0 then
    return 0, nil
  end
  local ids = redis.call('ZRANGE', queue, 0, math.min(count, LOOKAHEAD) - 1)
  local known = redis.call('HMGET', places, unpack(ids))
  local units, first, gone = 0, nil, {}
  for i, other in ipairs(ids) do
    local ends, wanted = string.match(known[i] or '', '^(%d+) (%d+)')
    ends = tonumber(ends or 0)
    if ends > now then
      units = units + tonumber(wanted)
      first = math.min(first or ends, ends)
    else
      gone[#gone + 1] = other
    end
  end
  if #gone > 0 then
    redis.call('ZREM', queue, unpack(gone))
    redis.call('HDEL', places, unpack(gone))
  end
  if count > LOOKAHEAD then
    units = math.huge
  end
  return units, first and first - now
end

-- Keeps the place of `id`, which is `rank`, for `place` ms, or gives it one at the end of the queue if that is false; tells which it is
-- from the front.
local function queue_up(queue, places, id, rank, wants, place, micros)
  local is_new = false
  if not rank then
    rank = redis.call('ZCARD', queue)
    is_new = rank == 0
    local last = not is_new and redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0
    redis.call('ZADD', queue, digits(math.max(last + 1, micros)), id)
  end
  redis.call('HSET', places, id, digits(math.floor(micros / 1000) + place) .. ' ' .. wants)
  if is_new or redis.call('PTTL', queue) < place then
    -- For longer than it must be, so that this is not done each time.
    redis.call('PEXPIRE', queue, digits(2 * place))
    redis.call('PEXPIRE', places, digits(2 * place))
  end
  return rank
end

-- Makes the first in the queue the holder, if it is one that waits for a mutex and hears of it over its connection: then it need not ask.
-- It is told which attempt was its last, and how long ago that was, which is all that it needs to know of our clock. False if there is
-- nobody like that, or nothing was heard of it for so long that it may be dead: it asks for its place again before half of the time is over.
-- `keys`: lock, queue, places, news, fence. `front`: who is first and second.
local function hand_over(keys, front, micros)
  local first = front[1]
  local known = redis.call('HGET', keys[3], first) or ''
  local ends, asked, ttl, spare, channel, value = string.match(known, '^(%d+) %d+ %d+ (%d+) (%d+) (%d+) (%S+) (.+)$')
  if not ends or 2 * (micros - asked) > 1000 * ends - asked then
    return false
  end
  -- Fails when memory is full.
  local numbered, token, more = pcall(number_grant, keys[5], micros, tonumber(spare))
  if not numbered or not token then
    return false
  end
  redis.call('SET', keys[1], value, 'PX', ttl)
  local told = redis.pcall('PUBLISH', channel, table.concat({
    digits(token), digits(more), ttl, asked, digits(micros - asked), first, keys[1],
  }, ' '))
  -- Its connection has ended, or we may not tell.
  if type(told) ~= 'number' or told == 0 then
    return false
  end
  redis.call('ZREM', keys[2], first)
  redis.call('HDEL', keys[3], first)
  tell(keys[4], {front[2]})
  return true
end

-- KEYS: lock, fence.
-- {value or nil, remaining TTL in ms (negative: for ever), first token of later grants or nil}
local held = redis.call('GET', KEYS[1])
if not held then
  return {false, 0, false}
end
local remaining = redis.call('PTTL', KEYS[1])

-- The token moves on, so that a resource can be told to refuse the former holder. When memory is
-- full that fails, and the lock is released all the same.
local token = false
local last = tonumber(redis.pcall('GET', KEYS[2]) or '0')
if last then
  local time = redis.call('TIME')
  local next = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))
  local stored = redis.pcall('SET', KEYS[2], next)
  token = stored.ok and next or false
end

redis.call('DEL', KEYS[1])
return {string.sub(held, 1, 512), remaining, token}

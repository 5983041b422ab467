-- KEYS: lock, fence.
-- {value or nil, remaining TTL in ms (negative: for ever), last token or nil}
local held = redis.call('GET', KEYS[1])
return {held and string.sub(held, 1, 512), redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2])}

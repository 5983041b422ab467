--- @include "time"

-- The larger of the last token + 1 and `least`, that of the server's clock: tokens stay in order after a restart, a flush or a failover
-- that lost the counter. Nil if the counter is no number.
local function next_token(last, least)
  last = tonumber(last or '0')
  return last and math.max(last + 1, least)
end

-- The tokens of a grant after `last`: the first, and the last, of at most so many `spare` ones beside the first; or nil and an error.
-- The last of them is the largest token that the clock allows, so that spare ones never run ahead of the clock: they number the time
-- since the last grant. If the counter was lost, that time is unknown.
local function tokens_after(last, least, spare)
  last = last and (tonumber(last) or last)
  local token = next_token(last, least)
  if not token then
    return nil, redis.error_reply('WRONGTYPE the fence of this key is not a number')
  end
  -- From 2^53 on, adding one changes nothing.
  if token >= 9007199254740992 then
    return nil, redis.error_reply('ERR no fencing token is left')
  end
  return last and math.max(last + 1, token - spare) or token, token
end

-- Numbers a grant: its token, which is `least` or larger, and how many more it has, at most `spare`; or nil and an error.
local function number_from(fence, least, spare)
  -- Nearly always it is the clock. This write returns the previous value, so the server does not take it for a read, which it would
  -- track.
  local last = redis.call('SET', fence, least, 'GET')
  local first, token = tokens_after(last, least, spare)
  if not first then
    redis.call('SET', fence, last)
    return nil, token
  end
  if token ~= least then
    redis.call('SET', fence, token)
  end
  return first, token - first
end

-- The same at this time.
local function number_grant(fence, micros, spare)
  return number_from(fence, token_at(micros), spare)
end

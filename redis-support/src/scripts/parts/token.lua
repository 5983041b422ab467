--- @include "time"

-- Returns the larger of the last token + 1 and `least`, which is the token of the server's clock.
-- Tokens stay in order even if a restart, a flush or a failover has lost the counter. Returns nil
-- if the counter is not a number.
local function next_token(last, least)
  last = tonumber(last or '0')
  return last and math.max(last + 1, least)
end

-- Returns the first and the last token of a grant after `last`, with at most `spare` additional
-- tokens. Returns nil and an error if there is no token. The last token is the largest one that the
-- clock allows, so additional tokens never run ahead of the clock. They cover the time since the
-- last grant. If the counter was lost, this time is unknown.
local function tokens_after(last, least, spare)
  last = last and (tonumber(last) or last)
  local token = next_token(last, least)
  if not token then
    return nil, redis.error_reply('WRONGTYPE the fence of this key is not a number')
  end
  -- From 2^53 on, adding 1 has no effect.
  if token >= 9007199254740992 then
    return nil, redis.error_reply('ERR no fencing token is left')
  end
  return last and math.max(last + 1, token - spare) or token, token
end

-- Chooses the token of a grant, which is at least `least`, and the number of additional tokens,
-- which is at most `spare`. Returns nil and an error if there is no token.
local function number_from(fence, least, spare)
  -- The token is nearly always `least`. This write returns the previous value, and the server does
  -- not treat it as a read that must be tracked.
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

-- Chooses the token of a grant at this time.
local function number_grant(fence, micros, spare)
  return number_from(fence, token_at(micros), spare)
end

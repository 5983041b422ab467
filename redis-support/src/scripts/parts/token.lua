-- The larger of the last token + 1 and the server's clock in microseconds: tokens stay in order
-- after a restart, a flush or a failover that lost the counter. Nil if what lies there is no number.
local function next_token(last, micros)
  last = tonumber(last or '0')
  return last and math.max(last + 1, micros)
end

-- Numbers a grant: its token, and how many more it has, at most `spare`; or nil and an error. Before the lock is stored, so
-- that an error half-way never leaves a lock without a token.
-- The last of them is what the next token would be, so that spare ones never run ahead of the clock: they are numbers of
-- the time since the last grant. Of that nothing is known where the counter was lost.
local function number_grant(fence, micros, spare)
  local last = redis.call('GET', fence)
  local token = next_token(last, micros)
  if not token then
    return nil, redis.error_reply('WRONGTYPE the fence of this key is not a number')
  end
  -- From 2^53 on, adding one changes nothing.
  if token >= 9007199254740992 then
    return nil, redis.error_reply('ERR no fencing token is left')
  end
  redis.call('SET', fence, digits(token))
  local first = last and math.max(tonumber(last) + 1, token - spare) or token
  return digits(first), token - first
end

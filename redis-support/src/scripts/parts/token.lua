-- The larger of the last token + 1 and the server's clock in microseconds: tokens stay in order
-- after a restart, a flush or a failover that lost the counter. Nil if what lies there is no number.
local function next_token(last, micros)
  last = tonumber(last or '0')
  return last and math.max(last + 1, micros)
end

-- Numbers a grant: {token}, or {nil, error}. Before the lock is stored, so that an error half-way
-- never leaves a lock without a token.
local function number_grant(fence, micros)
  local token = next_token(redis.call('GET', fence), micros)
  if not token then
    return nil, redis.error_reply('WRONGTYPE the fence of this key is not a number')
  end
  -- From 2^53 on, adding one changes nothing.
  if token >= 9007199254740992 then
    return nil, redis.error_reply('ERR no fencing token is left')
  end
  redis.call('SET', fence, digits(token))
  return digits(token)
end

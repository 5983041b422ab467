-- The server's clock, in microseconds. No client's clock ever counts.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- The token of a time: each microsecond has two (`Grant::TOKENS_PER_MICROSECOND`).
local function token_at(micros)
  return 2 * micros
end

-- A number as the server stores it: all its digits.
local function digits(number)
  return string.format('%.0f', number)
end

-- Returns the server's clock in microseconds. Clients' clocks are never used.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Returns the token of a time. Each microsecond has two tokens (`Grant::TOKENS_PER_MICROSECOND`).
local function token_at(micros)
  return 2 * micros
end

-- Converts a number to text with all of its digits.
local function digits(number)
  return string.format('%.0f', number)
end

-- Who waits sees to it that the key of the news is there and reads it, and who frees something
-- deletes it: so the server tells all who wait, once, and a renewal wakes nobody.
local function await_news(news)
  -- When memory is full it is not written, and those who wait poll.
  redis.pcall('SET', news, '1', 'NX', 'PX', 60000)
  redis.call('GET', news)
end

-- Posts $BODY. At the end: requests, microseconds, failures, and 200 quantiles of the latency in microseconds.
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = os.getenv("BODY")

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.status + errors.connect + errors.read + errors.write + errors.timeout
  io.write("measured ", summary.requests, " ", summary.duration, " ", failed)
  for number = 1, 200 do io.write(" ", latency:percentile(number / 2 - 0.25)) end
  io.write("\n")
end

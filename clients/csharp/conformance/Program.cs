// Produces, consumes and checks with the client. Prints one JSON object per line.
//
// Usage: Conformance produce QUEUE PRODUCER COUNT | consume QUEUE LEASE_SECONDS CONCURRENCY [stream] | checks QUEUE
//        | properties QUEUE REFUSING | options QUEUE JSON | letters QUEUE | redrive QUEUE | refusals JSON

using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using System.Text.Json;
using System.Text.Json.Serialization;
using System.Threading;
using System.Threading.Tasks;
using Babelgate.Client;
using Babelgate.Client.Generated;

namespace Conformance
{
    internal static class Program
    {
        private const string Job = "urn:babel:conformance:made";
        private const string TraceId = "0f6d1d9e-2f0a-4b9e-8a39-0a4f9a3a7d10";
        private const string Traceparent = "00-0f6d1d9e2f0a4b9e8a390a4f9a3a7d10-00f067aa0ba902b7-01";

        private static async Task Main(string[] arguments)
        {
            var (command, queue) = (arguments[0], arguments[1]);
            if (command == "produce")
            {
                await ProduceAsync(queue, arguments[2], int.Parse(arguments[3], CultureInfo.InvariantCulture));
            }
            else if (command == "consume")
            {
                var concurrency = int.Parse(arguments[3], CultureInfo.InvariantCulture);
                await ConsumeAsync(queue, new ConsumerOptions
                {
                    Lease = TimeSpan.FromSeconds(double.Parse(arguments[2], CultureInfo.InvariantCulture)),
                    Concurrency = concurrency,
                    Stream = arguments.Length > 4,
                    Grace = TimeSpan.FromSeconds(5),
                });
            }
            else if (command == "properties")
            {
                await PropertiesAsync(queue, arguments[2]);
            }
            else if (command == "options")
            {
                await OptionsAsync(queue, JsonDocument.Parse(arguments[2]).RootElement);
            }
            else if (command == "letters")
            {
                await LettersAsync(queue);
            }
            else if (command == "redrive")
            {
                await RedriveAsync(queue);
            }
            else if (command == "refusals")
            {
                await RefusalsAsync(JsonDocument.Parse(queue).RootElement);
            }
            else
            {
                await ChecksAsync(queue);
            }
        }

        // Lines of several threads are not mixed: Console.Out is synchronized, and it flushes at once.
        private static void Say(object facts) => Console.WriteLine(JsonSerializer.Serialize(facts));

        private static Message Made(int n) => new Message(Job, new { n });

        private static async Task ProduceAsync(string queue, string producer, int count)
        {
            await using var client = new BabelgateClient();
            Message Make(int n) => new Message(Job, new { producer, n });
            for (var n = 0; n < count; n += 2)
            {
                var receipt = await client.PublishAsync(queue, Make(n));
                Say(new { id = receipt.Id, producer, n });
            }
            var odd = Enumerable.Range(0, count).Where(n => n % 2 == 1).ToList();
            for (var start = 0; start < odd.Count; start += 10)
            {
                var part = odd.Skip(start).Take(10).ToList();
                var results = await client.PublishBatchAsync(queue, part.Select(Make).ToList());
                foreach (var (n, result) in part.Zip(results))
                {
                    if (result.Status != 201)
                    {
                        throw new InvalidOperationException($"{result.Status} {result.Code}: {result.Detail}");
                    }
                    Say(new { id = result.Id, producer, n });
                }
            }
        }

        private static async Task ConsumeAsync(string queue, ConsumerOptions options)
        {
            static async Task HandleAsync(Delivery delivery, CancellationToken cancellation)
            {
                var data = delivery.DataAs<Order>();
                await Task.Delay(TimeSpan.FromSeconds(data.SleepSeconds), cancellation);
                if (data.Reject)
                {
                    throw new RejectException("as the message says");
                }
                if (delivery.Attempts < data.FailTimes)
                {
                    throw new InvalidOperationException("as the message says");
                }
                var (producer, n) = (data.Producer, data.N);
                Say(new { @event = "handled", id = delivery.Id, producer, n, attempts = delivery.Attempts });
            }

            var stop = new CancellationTokenSource();
            var stopped = new ManualResetEventSlim();
            // SIGTERM; the process ends when this returns.
            AppDomain.CurrentDomain.ProcessExit += (_, exiting) =>
            {
                stop.Cancel();
                stopped.Wait();
                Environment.ExitCode = 0;
            };
            await using var client = new BabelgateClient();
            await client.ConsumeAsync(queue, HandleAsync, options, stop.Token);
            Say(new { @event = "stopped" });
            stopped.Set();
        }

        private static async Task ChecksAsync(string queue)
        {
            var facts = new Dictionary<string, object?>();
            await using var client = new BabelgateClient();
            Task<IReadOnlyList<Delivery>> Receive(int most, double leaseSeconds) =>
                client.ReceiveAsync(queue, most, TimeSpan.FromSeconds(20), TimeSpan.FromSeconds(leaseSeconds));

            var receipt = await client.PublishAsync(
                queue, new Message(Job, new { n = 1 }) { TraceId = TraceId }, Traceparent);
            facts["published"] = receipt;
            var twice = new Message(Job, new { n = 2 }) { IdempotencyKey = $"once-{receipt.Id}" };
            facts["replayed"] =
                (await client.PublishAsync(queue, twice)).Id == (await client.PublishAsync(queue, twice)).Id;
            var results = await client.PublishBatchAsync(queue, new[] { Made(3), new Message("", new { n = 4 }), Made(5) });
            facts["batch"] = results.Select(result => result.Status);
            var deliveries = await Receive(10, 30);
            var first = deliveries[0];
            facts["received"] = new
            {
                id = first.Id,
                job = first.Job,
                trace_id = first.TraceId,
                data = first.Data,
                attempts = first.Attempts,
                redelivered = first.Redelivered,
                traceparent = first.Traceparent,
            };
            var extended = await client.ExtendAsync(first, TimeSpan.FromMinutes(5));
            facts["extended"] = extended.Results[0].LeaseExpiresAt > first.LeaseExpiresAt.ToUnixTimeMilliseconds();
            await client.NackAsync(first, TimeSpan.Zero, "no", "NoError");
            var again = (await Receive(1, 30)).Single();
            facts["nacked_attempts"] = again.Attempts;
            facts["acked"] = (await client.AckAsync(deliveries.Skip(1).Append(again).ToList())).Settled;
            var none = new Dictionary<string, string>();
            try
            {
                await client.AckAsync(new Delivery(queue, "nonsense", default, 0, false, none, default));
            }
            catch (ProblemException problem)
            {
                facts["problem"] = new { status = problem.Status, code = problem.Code, retryable = problem.Retryable };
            }
            await client.PublishAsync(queue, Made(6));
            var late = (await Receive(1, 1)).Single();
            await Task.Delay(1200);
            var taken = (await Receive(1, 30)).Single();
            try
            {
                await client.AckAsync(late);
            }
            catch (LeaseLostException lost)
            {
                facts["lease_lost"] = lost.Code;
            }
            await client.AckAsync(taken);
            await using var nowhere =
                new BabelgateClient("http://127.0.0.1:9", new ClientOptions { RetryFor = TimeSpan.Zero });
            try
            {
                await nowhere.PublishAsync(queue, Made(7));
            }
            catch (UnreachableException error)
            {
                facts["not_found_or_unreachable"] = error.GetType().Name;
            }
            Say(facts);
        }

        /// <summary>The queue takes broker properties, and the refusing one takes none.</summary>
        private static async Task PropertiesAsync(string queue, string refusing)
        {
            var facts = new Dictionary<string, object?>();
            await using var client = new BabelgateClient();
            async Task<IReadOnlyDictionary<string, JsonElement>> Received(string name)
            {
                var wait = TimeSpan.FromSeconds(20);
                var delivery = (await client.ReceiveAsync(name, 1, wait, TimeSpan.FromSeconds(30))).Single();
                await client.AckAsync(delivery);
                return delivery.BrokerProperties;
            }

            var single = new Message(Job, new { n = 1 })
            {
                BrokerProperties = new Dictionary<string, object> { ["TimeToLive"] = 3600, ["ReplyTo"] = "replies" },
            };
            var entry = new Message(Job, new { n = 2 })
            {
                BrokerProperties = new Dictionary<string, object> { ["TimeToLive"] = 86400.5, ["To"] = "warehouse" },
            };
            await client.PublishAsync(queue, single);
            facts["published"] = await Received(queue);
            var accepted = (await client.PublishBatchAsync(queue, new[] { entry })).Single();
            if (accepted.Status != 201)
            {
                throw new InvalidOperationException($"{accepted.Status} {accepted.Code}: {accepted.Detail}");
            }
            facts["batch"] = await Received(queue);
            try
            {
                await client.PublishAsync(refusing, single);
            }
            catch (ProblemException problem)
            {
                facts["refused"] = new { status = problem.Status, code = problem.Code };
            }
            var refused = (await client.PublishBatchAsync(refusing, new[] { entry })).Single();
            facts["refused_in_batch"] = new { status = refused.Status, code = refused.Code };
            await client.PublishAsync(refusing, Made(5));
            facts["without"] = await Received(refusing);
            Say(facts);
        }

        /// <summary>Publishes without options, then with all that are given, alone and in a batch.</summary>
        private static async Task OptionsAsync(string queue, JsonElement given)
        {
            JsonElement? Given(string name) =>
                given.TryGetProperty(name, out var found) ? found : default(JsonElement?);
            TimeSpan? Seconds(string name) =>
                Given(name) is JsonElement found ? TimeSpan.FromSeconds(found.GetDouble()) : default(TimeSpan?);
            string Text(string name) => given.GetProperty(name).GetString();
            T? Read<T>(string name)
                where T : class =>
                Given(name) is JsonElement found ? JsonSerializer.Deserialize<T>(found.GetRawText()) : null;
            Message Full(int n, string key) => new Message(Job, new { n })
            {
                TraceId = Read<string>("trace_id"),
                Delay = Seconds("delay_seconds"),
                DeliverAt = Given("deliver_at") is JsonElement time
                    ? DateTimeOffset.FromUnixTimeMilliseconds(time.GetInt64())
                    : default(DateTimeOffset?),
                Ttl = Seconds("ttl_seconds"),
                Priority = Given("priority")?.GetInt32(),
                OrderingKey = Read<string>("ordering_key"),
                Headers = Read<Dictionary<string, string>>("headers"),
                IdempotencyKey = key,
                Lang = Text("lang"),
                Ext = Read<Dictionary<string, object?>>("ext"),
            };
            await using var client = new BabelgateClient();
            await client.PublishAsync(queue, Made(0));
            await client.PublishAsync(queue, Full(1, Text("idempotency_key")), Text("traceparent"));
            var batch = new[] { Full(2, Text("idempotency_key") + "-batch") };
            var results = await client.PublishBatchAsync(queue, batch, Text("traceparent"));
            Say(new { batch = results.Select(result => result.Status) });
        }

        /// <summary>The queue has five dead letters.</summary>
        private static async Task LettersAsync(string queue)
        {
            var facts = new Dictionary<string, object?>();
            await using var client = new BabelgateClient();
            var dead = client.DeadLetters(queue);
            var page = await dead.ListAsync(limit: 2);
            var rest = await dead.ListAsync(limit: 10, cursor: page.NextCursor);
            facts["pages"] = new object?[] { page.DeadLetters.Count, rest.DeadLetters.Count, rest.NextCursor };
            var ofJob = new List<int>();
            foreach (var job in new[] { Job, "urn:another" })
            {
                var filter = new DeadLetterFilter { Job = job, Reason = "failed" };
                ofJob.Add((await dead.ListAsync(filter)).DeadLetters.Count);
            }
            facts["of_job"] = ofJob;
            var ids = page.DeadLetters.Concat(rest.DeadLetters).Select(letter => letter.LetterId).ToList();
            var shown = await dead.ShowAsync(ids[0]);
            facts["shown"] = new { letter_id = shown.LetterId == ids[0], error = shown.Error };
            var every = new DeadLetterFilter { Job = Job };
            var dry = await dead.RedriveAsync(new RedriveRequest { Filter = every, Limit = 4, DryRun = true });
            facts["dry"] = new[] { dry.Matched, dry.Redriven };
            facts["redriven"] = (await dead.RedriveAsync(new RedriveRequest { Ids = ids.Take(1).ToList() })).Redriven;
            var edit = new RedriveDeadLetterRequest { Edit = new DeadLetterEdit { Data = new { n = 100 } } };
            var one = await dead.RedriveOneAsync(ids[1], edit);
            facts["one"] = new { to_queue = one.ToQueue == queue, edited = one.Edited };
            var removal = await dead.DeleteAsync(new[] { ids[2], "nonsense" });
            facts["deleted"] = new[] { removal.Removed, removal.Failed };
            var counted = await dead.PurgeAsync(dryRun: true);
            facts["counted"] = new[] { counted.Matched, counted.Removed };
            facts["purged"] = (await dead.PurgeAsync()).Removed;
            try
            {
                await dead.ShowAsync(ids[0]);
            }
            catch (ProblemException problem)
            {
                facts["gone"] = problem.Code;
            }
            Say(facts);
        }

        /// <summary>The gateway breaks the connection.</summary>
        private static async Task RedriveAsync(string queue)
        {
            await using var client = new BabelgateClient();
            try
            {
                await client.DeadLetters(queue).RedriveAsync(new RedriveRequest());
            }
            catch (UnreachableException error)
            {
                Say(new { outcome_unknown = error.OutcomeUnknown });
            }
        }

        /// <summary>What is said of each URL, token and traceparent that is given; null if nothing is.</summary>
        private static async Task RefusalsAsync(JsonElement given)
        {
            async Task<IEnumerable<string?>> SaidAsync(string name, Func<string, Task> attempt)
            {
                var said = new List<string?>();
                foreach (var each in given.GetProperty(name).EnumerateArray())
                {
                    try
                    {
                        await attempt(each.GetString());
                        said.Add(null);
                    }
                    catch (ArgumentException error)
                    {
                        said.Add(error.ToString());
                    }
                }
                return said;
            }

            await using var client = new BabelgateClient();
            Task Made(string? url, string? token)
            {
                new BabelgateClient(url, new ClientOptions { Token = token }).Dispose();
                return Task.CompletedTask;
            }

            Say(new
            {
                urls = await SaidAsync("urls", each => Made(each, null)),
                tokens = await SaidAsync("tokens", each => Made(null, each)),
                traceparents = await SaidAsync(
                    "traceparents", each => client.PublishAsync("q", new Message(Job, new { }), each)),
            });
        }

        private sealed class Order
        {
            public string? Producer { get; set; }

            public int N { get; set; }

            [JsonPropertyName("sleep_seconds")]
            public double SleepSeconds { get; set; }

            [JsonPropertyName("fail_times")]
            public long FailTimes { get; set; }

            public bool Reject { get; set; }
        }
    }
}

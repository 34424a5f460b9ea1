using System;
using System.Collections.Concurrent;
using System.Collections.Generic;
using System.Linq;
using System.Net.Http;
using System.Net.Http.Headers;
using System.Threading;
using System.Threading.Tasks;
using Babelgate.Client.Generated;

namespace Babelgate.Client
{
    /// <summary>
    /// A client of one gateway, for many threads. Methods throw <see cref="ProblemException"/> and
    /// <see cref="UnreachableException"/>, and OperationCanceledException when their token is cancelled.
    /// </summary>
    public sealed class BabelgateClient : IAsyncDisposable, IDisposable
    {
        private static readonly string Version = typeof(BabelgateClient).Assembly.GetName().Version!.ToString(3);
        private readonly ConcurrentDictionary<string, bool> _withoutKeys = new ConcurrentDictionary<string, bool>();
        private readonly ClientOptions _options;
        private readonly HttpClient _http;

        /// <summary>A client of the gateway at <paramref name="url"/>.</summary>
        /// <param name="url">Default: BABELGATE_URL, or else http://127.0.0.1:8080.</param>
        /// <param name="options">Default: those of <see cref="ClientOptions"/>.</param>
        /// <exception cref="ArgumentException">
        /// The URL or the token cannot be one. The text does not show the token.
        /// </exception>
        public BabelgateClient(string? url = null, ClientOptions? options = null)
        {
            _options = options ?? new ClientOptions();
            var home = First(url, Environment.GetEnvironmentVariable("BABELGATE_URL")) ?? "http://127.0.0.1:8080";
            var handler = new GatewayHandler(_options.HttpHandler ?? NewHandler(_options.Timeout), _options.Timeout);
            _http = new HttpClient(handler, disposeHandler: _options.HttpHandler == null)
            {
                BaseAddress = Calls.GatewayUrl(home),
                Timeout = Timeout.InfiniteTimeSpan,
            };
            _http.DefaultRequestHeaders.UserAgent.Add(new ProductInfoHeaderValue("babelgate-csharp", Version));
            if (First(_options.Token, Environment.GetEnvironmentVariable("BABELGATE_TOKEN")) is string token)
            {
                _http.DefaultRequestHeaders.Authorization = new AuthenticationHeaderValue("Bearer", Calls.Token(token));
            }
            Api = new Api(_http);
        }

        /// <summary>The generated client of the whole API, for what this class does not offer. It repeats nothing.</summary>
        public Api Api { get; }

        /// <summary>Closes the connections.</summary>
        public void Dispose() => _http.Dispose();

        /// <summary>Closes the connections.</summary>
        public ValueTask DisposeAsync()
        {
            Dispose();
            return default;
        }

        /// <summary>
        /// Publishes one message; ends when the broker has stored it. A failed call is repeated with the same idempotency
        /// key, so the message is written once. On a queue that keeps no keys, it is repeated only if nothing was written.
        /// </summary>
        /// <param name="queue">The queue.</param>
        /// <param name="message">The message.</param>
        /// <param name="traceparent">The W3C trace context to send along.</param>
        /// <param name="cancellationToken">Ends the call; the message may be published all the same.</param>
        public async Task<Receipt> PublishAsync(
            string queue, Message message, string? traceparent = null, CancellationToken cancellationToken = default)
        {
            var draft = message.Draft(null, _options.JsonOptions);
            var key = message.IdempotencyKey ?? (_withoutKeys.ContainsKey(queue) ? null : Calls.NewKey());
            try
            {
                var call = Calls.Publish(queue, draft, key, traceparent);
                return Json.Read<Receipt>(await CallAsync(call, cancellationToken).ConfigureAwait(false));
            }
            catch (ProblemException problem) when (
                problem.Code == Calls.NeedsNoKey && key != null && message.IdempotencyKey == null)
            {
                _withoutKeys[queue] = true;
            }
            var again = Calls.Publish(queue, draft, null, traceparent);
            return Json.Read<Receipt>(await CallAsync(again, cancellationToken).ConfigureAwait(false));
        }

        /// <summary>
        /// Publishes messages in order; one result per message. Only entries that failed are sent again. An exception
        /// means that a request failed as a whole: messages of earlier requests may have been published.
        /// </summary>
        /// <param name="queue">The queue.</param>
        /// <param name="messages">The messages; any number.</param>
        /// <param name="traceparent">The W3C trace context to send along.</param>
        /// <param name="cancellationToken">Ends the call; messages may be published all the same.</param>
        public async Task<IReadOnlyList<EntryResult>> PublishBatchAsync(
            string queue,
            IReadOnlyList<Message> messages,
            string? traceparent = null,
            CancellationToken cancellationToken = default)
        {
            var batch = new Batch(messages, !_withoutKeys.ContainsKey(queue), _options.JsonOptions);
            var attempts = new Attempts(Repeat.Always, _options.RetryFor);
            while (true)
            {
                foreach (var part in batch.Parts())
                {
                    var call = batch.CallOf(queue, part, traceparent);
                    batch.Record(part, Json.Read<BatchResult>(await CallAsync(call, cancellationToken).ConfigureAwait(false)));
                }
                var failure = batch.Failure();
                if (batch.KeysUnsupported)
                {
                    _withoutKeys[queue] = true;
                }
                if (failure == null || !attempts.TryPause(failure, out var pause))
                {
                    return batch.Results;
                }
                await Task.Delay(pause, cancellationToken).ConfigureAwait(false);
            }
        }

        /// <summary>Leases messages; none when there are none within <paramref name="wait"/>.</summary>
        /// <param name="queue">The queue.</param>
        /// <param name="maxMessages">1 to 100.</param>
        /// <param name="wait">For the first message, at most 30 s.</param>
        /// <param name="lease">Default: that of the queue.</param>
        /// <param name="cancellationToken">Ends the call; messages that were on their way are delivered again.</param>
        public async Task<IReadOnlyList<Delivery>> ReceiveAsync(
            string queue,
            int maxMessages = 1,
            TimeSpan wait = default,
            TimeSpan? lease = null,
            CancellationToken cancellationToken = default)
        {
            var call = Calls.Receive(queue, maxMessages, wait, lease);
            var answer = await CallAsync(call, cancellationToken).ConfigureAwait(false);
            return Calls.Deliveries(queue, answer, _options.JsonOptions);
        }

        /// <summary>Removes the message.</summary>
        /// <exception cref="LeaseLostException">The lease is over.</exception>
        public Task<SettleOutcome> AckAsync(Delivery delivery, CancellationToken cancellationToken = default) =>
            AckAsync(new[] { delivery }, cancellationToken);

        /// <summary>Removes up to 1,000 messages of one queue; one result per message.</summary>
        public Task<SettleOutcome> AckAsync(
            IReadOnlyList<Delivery> deliveries, CancellationToken cancellationToken = default) =>
            SettleAsync(Calls.Settle("ack", deliveries), _options.RetryFor, cancellationToken);

        /// <summary>Delivers the message again.</summary>
        /// <param name="delivery">The message.</param>
        /// <param name="delay">Default: the backoff of the queue.</param>
        /// <param name="error">Why, for people.</param>
        /// <param name="exception">The class of the error.</param>
        /// <param name="failed">False: it was not attempted. It is available at once, and no attempt is counted.</param>
        /// <param name="cancellationToken">Ends the call.</param>
        /// <exception cref="LeaseLostException">The lease is over.</exception>
        public Task<SettleOutcome> NackAsync(
            Delivery delivery,
            TimeSpan? delay = null,
            string? error = null,
            string? exception = null,
            bool failed = true,
            CancellationToken cancellationToken = default)
        {
            var members = failed ? Calls.Failed(error, exception, delay) : Calls.NotAttempted;
            return SettleAsync(Calls.Settle("nack", new[] { delivery }, members), _options.RetryFor, cancellationToken);
        }

        /// <summary>Dead-letters the message.</summary>
        /// <param name="delivery">The message.</param>
        /// <param name="error">Why, for people.</param>
        /// <param name="exception">The class of the error.</param>
        /// <param name="cancellationToken">Ends the call.</param>
        /// <exception cref="LeaseLostException">The lease is over.</exception>
        public Task<SettleOutcome> RejectAsync(
            Delivery delivery,
            string? error = null,
            string? exception = null,
            CancellationToken cancellationToken = default)
        {
            var call = Calls.Settle("reject", new[] { delivery }, Calls.Failed(error, exception));
            return SettleAsync(call, _options.RetryFor, cancellationToken);
        }

        /// <summary>Prolongs the lease: it ends <paramref name="lease"/> from now.</summary>
        /// <exception cref="LeaseLostException">The lease is over.</exception>
        public Task<SettleOutcome> ExtendAsync(
            Delivery delivery, TimeSpan lease, CancellationToken cancellationToken = default)
        {
            var call = Calls.Settle("extend", new[] { delivery }, writer => Json.WriteSeconds(writer, "lease_seconds", lease));
            return SettleAsync(call, _options.RetryFor, cancellationToken);
        }

        /// <summary>
        /// Runs <paramref name="handler"/> for the messages of a queue, several at a time, until <paramref name="stop"/> is
        /// cancelled. It then receives no more, waits <see cref="ConsumerOptions.Grace"/> for running handlers, gives back
        /// the rest without counting an attempt, and ends. A gateway that is away or overloaded is waited for.
        /// </summary>
        /// <param name="queue">The queue.</param>
        /// <param name="handler">
        /// When it ends, the message is acked. An exception nacks it, with its text and class; <see cref="RejectException"/>
        /// and <see cref="RetryException"/> do what they say. Its token is cancelled when the lease is lost or the grace is
        /// over.
        /// </param>
        /// <param name="options">Default: those of <see cref="ConsumerOptions"/>.</param>
        /// <param name="stop">Stops the consumer; no exception is thrown for it.</param>
        /// <exception cref="ProblemException">
        /// The gateway refuses to receive, such as for an unknown queue or a missing right. What was held is then finished
        /// or given back, as after a stop.
        /// </exception>
        public Task ConsumeAsync(
            string queue,
            Func<Delivery, CancellationToken, Task> handler,
            ConsumerOptions? options = null,
            CancellationToken stop = default) =>
            new Consumer(this, _options, queue, handler, options ?? new ConsumerOptions()).RunAsync(stop);

        /// <summary>The dead letters of <paramref name="queue"/>: list, show, redrive, delete and purge them.</summary>
        public DeadLetters DeadLetters(string queue) => new DeadLetters(this, queue);

        internal async Task<SettleOutcome> SettleAsync(Call call, TimeSpan retryFor, CancellationToken cancellationToken) =>
            Json.Read<SettleOutcome>(await CallAsync(call, cancellationToken, retryFor).ConfigureAwait(false));

        /// <summary>The body of the answer. A failed call is repeated for at most <paramref name="retryFor"/>.</summary>
        internal async Task<byte[]> CallAsync(Call call, CancellationToken cancellationToken, TimeSpan? retryFor = null)
        {
            var attempts = new Attempts(call.Repeat, retryFor ?? _options.RetryFor);
            while (true)
            {
                TimeSpan pause;
                try
                {
                    return await OnceAsync(call, cancellationToken).ConfigureAwait(false);
                }
                catch (BabelgateException error) when (attempts.TryPause(error, out pause))
                {
                }
                await Task.Delay(pause, cancellationToken).ConfigureAwait(false);
            }
        }

        /// <summary>The head of an answer without end, whose body is to be read.</summary>
        internal async Task<HttpResponseMessage> StreamAsync(Call call, CancellationToken cancellationToken)
        {
            using var request = new HttpRequestMessage(HttpMethod.Get, call.Path);
            request.Headers.Accept.Add(new MediaTypeWithQualityHeaderValue(MessageStream.ContentType));
            request.Properties[GatewayHandler.Streams] = true;
            var headOnly = HttpCompletionOption.ResponseHeadersRead;
            return await _http.SendAsync(request, headOnly, cancellationToken).ConfigureAwait(false);
        }

        private async Task<byte[]> OnceAsync(Call call, CancellationToken cancellationToken)
        {
            using var request = new HttpRequestMessage(call.Body == null ? HttpMethod.Get : HttpMethod.Post, call.Path);
            if (call.Body != null)
            {
                request.Content = new ByteArrayContent(call.Body);
                request.Content.Headers.ContentType = new MediaTypeHeaderValue("application/json");
            }
            request.Properties[GatewayHandler.Wait] = call.Wait;
            foreach (var (name, text) in new[] { ("Idempotency-Key", call.IdempotencyKey), ("traceparent", call.Traceparent) })
            {
                if (text != null)
                {
                    request.Headers.TryAddWithoutValidation(name, text);
                }
            }
            using var response = await _http.SendAsync(request, cancellationToken).ConfigureAwait(false);
            return await response.Content.ReadAsByteArrayAsync().ConfigureAwait(false);
        }

        private static SocketsHttpHandler NewHandler(TimeSpan timeout)
        {
            var longest = TimeSpan.FromSeconds(10);
            return new SocketsHttpHandler
            {
                AllowAutoRedirect = false,
                ConnectTimeout = timeout < longest ? timeout : longest,
                // A name that leads to another address is noticed.
                PooledConnectionLifetime = TimeSpan.FromMinutes(5),
                UseCookies = false,
            };
        }

        private static string? First(params string?[] texts) => texts.FirstOrDefault(text => !string.IsNullOrEmpty(text));
    }
}

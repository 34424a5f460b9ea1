using System;
using System.Collections.Generic;
using System.Linq;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;

namespace Babelgate.Client
{
    /// <summary>Consumes a queue: receives, runs a handler for each message, keeps its lease, and settles it.</summary>
    internal sealed class Consumer
    {
        private const int MostPerReceive = 100;
        private const int MostRefusals = 8;
        private const int MostErrorCharacters = 10_000;
        private const int MostExceptionCharacters = 1_000;
        private static readonly TimeSpan GiveBackWithin = TimeSpan.FromSeconds(5);

        /// <summary>How long a stop waits for messages that are on their way; else they were gone for their leases.</summary>
        private static readonly TimeSpan ArriveWithin = TimeSpan.FromSeconds(0.25);

        private readonly BabelgateClient _client;
        private readonly ClientOptions _clientOptions;
        private readonly string _queue;
        private readonly Func<Delivery, CancellationToken, Task> _handler;
        private readonly ConsumerOptions _options;
        private readonly SemaphoreSlim _free;
        private readonly HashSet<Held> _held = new HashSet<Held>();
        private MessageStream? _stream;
        private long _streamEndedAt = -1;

        /// <summary>Cancelled when handlers are not waited for any longer.</summary>
        private readonly CancellationTokenSource _graceOver = new CancellationTokenSource();

        /// <summary>Cancelled when what is held is given back: nothing else settles it then.</summary>
        private readonly CancellationTokenSource _givingBack = new CancellationTokenSource();

        public Consumer(
            BabelgateClient client,
            ClientOptions clientOptions,
            string queue,
            Func<Delivery, CancellationToken, Task> handler,
            ConsumerOptions options)
        {
            _client = client;
            _clientOptions = clientOptions;
            _queue = queue;
            _handler = handler;
            _options = options;
            _free = new SemaphoreSlim(options.Concurrency);
        }

        public async Task RunAsync(CancellationToken stop)
        {
            var kept = Task.Run(() => KeepLeasesAsync(_givingBack.Token));
            try
            {
                if (!_options.Stream || !await StreamAsync(stop).ConfigureAwait(false))
                {
                    await ReceiveAsync(stop).ConfigureAwait(false);
                }
            }
            finally
            {
                await FinishAsync().ConfigureAwait(false);
                CloseStream();
                await kept.ConfigureAwait(false);
            }
        }

        /// <summary>Starts what streams deliver, until a stop. False: there are none, and long polls are to follow.</summary>
        private async Task<bool> StreamAsync(CancellationToken stop)
        {
            var attempts = new Attempts(Repeat.Always, Attempts.Forever);
            // Answers as of a gateway without streams that are waited out: none before a stream has worked.
            var refusalsLeft = 0;
            var call = Calls.Stream(_queue, _options.Concurrency, _options.Lease);
            var stopped = Task.Delay(Timeout.Infinite, stop);
            while (!stop.IsCancellationRequested)
            {
                var json = _clientOptions.JsonOptions;
                var stream = new MessageStream(end => _client.StreamAsync(call, end), _queue, json, _options.Log);
                _stream = stream;
                TimeSpan pause;
                try
                {
                    while (true)
                    {
                        var next = stream.NextAsync();
                        // After a stop the stream ends when the handlers have ended. What was not handled goes back then.
                        if (await Task.WhenAny(next, stopped).ConfigureAwait(false) != next)
                        {
                            return true;
                        }
                        var delivery = await next.ConfigureAwait(false);
                        if (!await PassedAsync(_free.WaitAsync(stop)).ConfigureAwait(false))
                        {
                            return true;
                        }
                        Start(new Held(delivery, Clock.Now + _options.Lease, _graceOver.Token));
                    }
                }
                catch (BabelgateException) when (stop.IsCancellationRequested)
                {
                    return true;
                }
                catch (BabelgateException) when (stream.IsUnavailable && refusalsLeft == 0)
                {
                    CloseStream();
                    _options.Log("The gateway offers no streams: the consumer goes on with long polls.", null);
                    return false;
                }
                catch (BabelgateException error)
                {
                    CloseStream();
                    if (stream.WasHeard)
                    {
                        attempts = new Attempts(Repeat.Always, Attempts.Forever);
                        refusalsLeft = MostRefusals;
                    }
                    var failure = error;
                    if (stream.IsUnavailable)
                    {
                        // What has worked comes back, such as after an update of the gateway.
                        refusalsLeft--;
                        failure = new UnreachableException($"No stream was opened: {error.Message}", false, error);
                    }
                    if (!attempts.TryPause(failure, out pause))
                    {
                        throw;
                    }
                    Warn($"stream of {_queue} failed, next in {pause.TotalSeconds:0.0} s", failure);
                }
                await PassedAsync(Task.Delay(pause, stop)).ConfigureAwait(false);
            }
            return true;
        }

        /// <summary>The gateway takes back what is not settled, unless it was killed: these leases are to be asked about now.</summary>
        private void CloseStream()
        {
            _stream?.Dispose();
            _stream = null;
            Interlocked.Exchange(ref _streamEndedAt, Clock.Now.Ticks);
        }

        private async Task ReceiveAsync(CancellationToken stop)
        {
            var attempts = new Attempts(Repeat.Always, Attempts.Forever);
            using var abort = new CancellationTokenSource();
            using var stopping = stop.Register(() => abort.CancelAfter(ArriveWithin));
            while (await PassedAsync(_free.WaitAsync(stop)).ConfigureAwait(false))
            {
                // The first free place is waited for; each other one asks for one more message.
                var wanted = 1;
                while (wanted < MostPerReceive && _free.Wait(0))
                {
                    wanted++;
                }
                var received = 0;
                var asked = Clock.Now;
                var pause = TimeSpan.Zero;
                try
                {
                    var call = Calls.Receive(_queue, wanted, _options.Wait, _options.Lease);
                    var answer = await _client.CallAsync(call, abort.Token, TimeSpan.Zero).ConfigureAwait(false);
                    var deliveries = Calls.Deliveries(_queue, answer, _clientOptions.JsonOptions);
                    if (stop.IsCancellationRequested)
                    {
                        await GiveBackAsync(deliveries).ConfigureAwait(false);
                        return;
                    }
                    foreach (var delivery in deliveries)
                    {
                        Start(new Held(delivery, asked + _options.Lease, _graceOver.Token));
                    }
                    received = deliveries.Count;
                    attempts = new Attempts(Repeat.Always, Attempts.Forever);
                }
                catch (OperationCanceledException) when (stop.IsCancellationRequested)
                {
                }
                catch (BabelgateException error) when (attempts.TryPause(error, out pause))
                {
                    Warn($"receive from {_queue} failed, next in {pause.TotalSeconds:0.0} s", error);
                }
                if (received < wanted)
                {
                    _free.Release(wanted - received);
                }
                await PassedAsync(Task.Delay(pause, stop)).ConfigureAwait(false);
            }
        }

        private void Start(Held held)
        {
            lock (_held)
            {
                _held.Add(held);
                // A handler that works before its first await must not delay the others.
                held.Handling = Task.Run(() => HandleAsync(held));
            }
        }

        private async Task HandleAsync(Held held)
        {
            try
            {
                await HandleAndSettleAsync(held).ConfigureAwait(false);
            }
            catch (BabelgateException error)
            {
                Warn($"message {held.Delivery.Id} of {_queue} was not settled", error);
            }
            catch (OperationCanceledException) when (_givingBack.IsCancellationRequested)
            {
            }
            finally
            {
                // What the end of the grace interrupted is still to be given back.
                if (held.Settled || held.Lost || !_graceOver.IsCancellationRequested)
                {
                    lock (_held)
                    {
                        _held.Remove(held);
                    }
                }
                _free.Release();
                held.Cancellation.Dispose();
            }
        }

        private async Task HandleAndSettleAsync(Held held)
        {
            var action = "ack";
            Action<Utf8JsonWriter>? members = null;
            try
            {
                await _handler(held.Delivery, held.Token).ConfigureAwait(false);
            }
            catch (RejectException reject)
            {
                action = "reject";
                members = Failed(reject);
            }
            catch (RetryException retry)
            {
                action = "nack";
                members = Failed(retry, retry.Delay);
            }
            catch (Exception) when (held.Token.IsCancellationRequested)
            {
                // The lease is lost, or the message is given back.
                return;
            }
            catch (Exception error)
            {
                _options.Log($"the handler of {_queue} failed for {held.Delivery.Id}", error);
                action = "nack";
                members = Failed(error);
            }
            if (held.Lost)
            {
                return;
            }
            // While the lease lives, and it is prolonged until this ends, the message is delivered to nobody else.
            var left = held.Deadline - Clock.Now;
            var call = Calls.Settle(action, new[] { held.Delivery }, members);
            var retryFor = left > _clientOptions.Timeout ? left : _clientOptions.Timeout;
            await _client.SettleAsync(call, retryFor, _givingBack.Token).ConfigureAwait(false);
            held.Settled = true;
        }

        /// <summary>Prolongs each lease of which a third is over, or that began before the end of a stream.</summary>
        private async Task KeepLeasesAsync(CancellationToken end)
        {
            while (await PassedAsync(Task.Delay(_options.Lease / 12, end)).ConfigureAwait(false))
            {
                var third = Clock.Now - _options.Lease / 3;
                var streamEnded = new TimeSpan(Interlocked.Read(ref _streamEndedAt));
                var dueBefore = third > streamEnded ? third : streamEnded;
                var held = HeldNow().Where(each => each.Deadline - _options.Lease < dueBefore).ToList();
                if (held.Count == 0)
                {
                    continue;
                }
                var asked = Clock.Now;
                IReadOnlyDictionary<long, string?> codes;
                try
                {
                    codes = await ExtendAsync(held, end).ConfigureAwait(false);
                }
                catch (Exception error) when (error is BabelgateException || error is OperationCanceledException)
                {
                    if (!end.IsCancellationRequested)
                    {
                        Warn($"{held.Count} leases of {_queue} were not prolonged", error);
                    }
                    continue;
                }
                for (var index = 0; index < held.Count; index++)
                {
                    codes.TryGetValue(index, out var code);
                    if (code == null)
                    {
                        held[index].Deadline = asked + _options.Lease;
                    }
                    else if (code == LeaseLostException.LeaseLost && !held[index].Settled)
                    {
                        held[index].Lost = true;
                        _options.Log($"the lease of {held[index].Delivery.Id} on {_queue} is lost", null);
                        Cancel(held[index].Cancellation);
                    }
                }
            }
        }

        /// <summary>The codes of what was not prolonged, by index.</summary>
        private async Task<IReadOnlyDictionary<long, string?>> ExtendAsync(List<Held> held, CancellationToken end)
        {
            // An answer that comes too late must not hinder the next attempt.
            using var soon = CancellationTokenSource.CreateLinkedTokenSource(end);
            var third = _options.Lease / 3;
            soon.CancelAfter(third > TimeSpan.FromSeconds(1) ? third : TimeSpan.FromSeconds(1));
            var deliveries = held.Select(each => each.Delivery).ToList();
            var call = Calls.Settle("extend", deliveries, writer => Json.WriteSeconds(writer, "lease_seconds", _options.Lease));
            try
            {
                var outcome = await _client.SettleAsync(call, TimeSpan.Zero, soon.Token).ConfigureAwait(false);
                return outcome.Results.ToDictionary(result => result.Index, result => result.Code);
            }
            catch (LeaseLostException lost)
            {
                // The answer to a single token.
                return new Dictionary<long, string?> { [0] = lost.Code };
            }
        }

        /// <summary>Waits for what runs, then gives back what does not end.</summary>
        private async Task FinishAsync()
        {
            if (!await EndedAsync(_options.Grace).ConfigureAwait(false))
            {
                Cancel(_graceOver);
                // A handler may end its own way when it is cancelled, and another does not notice.
                await EndedAsync(TimeSpan.FromSeconds(1)).ConfigureAwait(false);
            }
            _givingBack.Cancel();
            await GiveBackAsync(HeldNow().Select(held => held.Delivery).ToList()).ConfigureAwait(false);
        }

        private async Task GiveBackAsync(IReadOnlyList<Delivery> deliveries)
        {
            if (deliveries.Count == 0)
            {
                return;
            }
            using var limit = new CancellationTokenSource(GiveBackWithin);
            try
            {
                var call = Calls.Settle("nack", deliveries, Calls.NotAttempted);
                await _client.SettleAsync(call, GiveBackWithin, limit.Token).ConfigureAwait(false);
            }
            catch (Exception error) when (error is BabelgateException || error is OperationCanceledException)
            {
                Warn($"{deliveries.Count} messages of {_queue} were not given back", error);
            }
        }

        private async Task<bool> EndedAsync(TimeSpan within)
        {
            Task running;
            lock (_held)
            {
                running = Task.WhenAll(_held.Select(held => held.Handling));
            }
            return await Task.WhenAny(running, Task.Delay(within)).ConfigureAwait(false) == running;
        }

        /// <summary>What is held and not settled.</summary>
        private List<Held> HeldNow()
        {
            lock (_held)
            {
                return _held.Where(held => !held.Settled && !held.Lost).ToList();
            }
        }

        private void Warn(string what, Exception error)
        {
            var known = error as BabelgateException;
            _options.Log($"{what}: {known?.Message ?? "no answer in time"}", known);
        }

        private static Action<Utf8JsonWriter> Failed(Exception error, TimeSpan? delay = null)
        {
            var kind = error.GetType().FullName ?? error.GetType().Name;
            return Calls.Failed(Start(error.Message, MostErrorCharacters), Start(kind, MostExceptionCharacters), delay);
        }

        private static string Start(string text, int most) => text.Length > most ? text.Substring(0, most) : text;

        /// <summary>Whether <paramref name="task"/> ended before its token was cancelled.</summary>
        private static async Task<bool> PassedAsync(Task task)
        {
            try
            {
                await task.ConfigureAwait(false);
                return true;
            }
            catch (OperationCanceledException)
            {
                return false;
            }
        }

        /// <summary>Cancels in the background, because callbacks of handlers run in it, and may throw.</summary>
        private static void Cancel(CancellationTokenSource source) => Task.Run(source.Cancel);

        /// <summary>A delivery whose handler runs, and the time at which its lease ends; it began a lease before.</summary>
        private sealed class Held
        {
            private long _deadline;
            private volatile bool _lost;
            private volatile bool _settled;

            public Held(Delivery delivery, TimeSpan deadline, CancellationToken graceOver)
            {
                Delivery = delivery;
                Deadline = deadline;
                Cancellation = CancellationTokenSource.CreateLinkedTokenSource(graceOver);
                Token = Cancellation.Token;
            }

            public Delivery Delivery { get; }

            public CancellationTokenSource Cancellation { get; }

            public CancellationToken Token { get; }

            public Task Handling { get; set; } = Task.CompletedTask;

            public TimeSpan Deadline
            {
                get => new TimeSpan(Interlocked.Read(ref _deadline));
                set => Interlocked.Exchange(ref _deadline, value.Ticks);
            }

            public bool Lost
            {
                get => _lost;
                set => _lost = value;
            }

            public bool Settled
            {
                get => _settled;
                set => _settled = value;
            }
        }
    }
}

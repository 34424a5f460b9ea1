using System;
using System.IO;
using System.Linq;
using System.Net.Http;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Babelgate.Client.Generated;

namespace Babelgate.Client
{
    /// <summary>One open stream of messages. What is not taken from it stays in the network, and the gateway waits.</summary>
    internal sealed class MessageStream : IDisposable
    {
        /// <summary>Of the answer that is a stream.</summary>
        public const string ContentType = "application/x-ndjson";

        /// <summary>Three keep-alives of a gateway.</summary>
        private static readonly TimeSpan MostSilence = TimeSpan.FromSeconds(45);

        /// <summary>How gateways without streams, and proxies that do not pass them on, answer.</summary>
        private static readonly int[] Unavailable = { 404, 405, 406, 501 };

        private readonly Func<CancellationToken, Task<HttpResponseMessage>> _open;
        private readonly string _queue;
        private readonly JsonSerializerOptions _options;
        private readonly Action<string, Exception?> _log;
        private readonly CancellationTokenSource _closing = new CancellationTokenSource();
        private HttpResponseMessage? _response;
        private Stream? _body;
        private byte[] _buffer = new byte[16_384];
        private int _start;
        private int _end;

        /// <summary>A stream that <paramref name="open"/> opens when the first message is asked for.</summary>
        public MessageStream(
            Func<CancellationToken, Task<HttpResponseMessage>> open,
            string queue,
            JsonSerializerOptions options,
            Action<string, Exception?> log)
        {
            _open = open;
            _queue = queue;
            _options = options;
            _log = log;
        }

        /// <summary>Whether the gateway has sent anything, be it a keep-alive.</summary>
        public bool WasHeard { get; private set; }

        /// <summary>Whether the stream failed as where there are none.</summary>
        public bool IsUnavailable { get; private set; }

        /// <summary>
        /// The next message. Throws when the stream has ended, cannot be read, or is silent for too long.
        /// </summary>
        public async Task<Delivery> NextAsync()
        {
            try
            {
                _body ??= await NotSilentAsync(OpenAsync).ConfigureAwait(false);
                while (true)
                {
                    var line = await LineAsync().ConfigureAwait(false);
                    WasHeard = true;
                    // Others are keep-alives; a drain, which the end follows; and what later gateways send.
                    var (delivery, problem) = Decoded(line);
                    if (delivery != null)
                    {
                        return delivery;
                    }
                    if (problem != null)
                    {
                        Failed(problem);
                    }
                }
            }
            catch (ProblemException problem) when (!WasHeard)
            {
                // With 504 a proxy gives up on a stream that it keeps back.
                var offersNone = Unavailable.Contains(problem.Status) || problem.Status == 504 && problem.IsOfProxy;
                IsUnavailable = offersNone && problem.Code != "queue_not_found";
                throw;
            }
        }

        /// <summary>Closes the connection: the gateway takes back what is not settled.</summary>
        public void Dispose()
        {
            _closing.Cancel();
            _response?.Dispose();
        }

        private (Delivery?, Problem?) Decoded(byte[] line)
        {
            try
            {
                return Json.Read<(Delivery?, Problem?)>(line, read => read.GetProperty("event").GetString() switch
                {
                    "message" => (Delivery.Of(_queue, read.GetProperty("data"), _options), null),
                    "problem" => (null, JsonSerializer.Deserialize<Problem>(read.GetProperty("data").GetRawText())),
                    _ => (null, null),
                });
            }
            catch (UnreachableException)
            {
                // The next stream would send the same line.
                throw new ProblemException(200, new Problem { Detail = "a line of the stream is no JSON object" });
            }
        }

        private void Failed(Problem problem)
        {
            var error = new ProblemException((int)problem.Status, problem);
            if (!error.Retryable)
            {
                throw error;
            }
            _log($"the gateway cannot receive, and tries again: {error.Message}", error);
        }

        private async Task<Stream> OpenAsync(CancellationToken cancellationToken)
        {
            _response = await _open(cancellationToken).ConfigureAwait(false);
            if (_response.Content.Headers.ContentType?.MediaType != ContentType)
            {
                IsUnavailable = true;
                throw new UnreachableException("The answer is no stream.", false);
            }
            return await _response.Content.ReadAsStreamAsync().ConfigureAwait(false);
        }

        private async Task<byte[]> LineAsync()
        {
            var seen = _start;
            int newLine;
            while ((newLine = Array.IndexOf(_buffer, (byte)'\n', seen, _end - seen)) < 0)
            {
                seen = _end;
                if (_end == _buffer.Length)
                {
                    var larger = _end - _start > _buffer.Length / 2 ? new byte[_buffer.Length * 2] : _buffer;
                    Buffer.BlockCopy(_buffer, _start, larger, 0, _end - _start);
                    (_buffer, seen, _end, _start) = (larger, seen - _start, _end - _start, 0);
                }
                var free = new Memory<byte>(_buffer, _end, _buffer.Length - _end);
                var count = await NotSilentAsync(token => _body!.ReadAsync(free, token).AsTask()).ConfigureAwait(false);
                _end += count > 0 ? count : throw new UnreachableException("The stream has ended.", false);
            }
            var line = new ReadOnlySpan<byte>(_buffer, _start, newLine - _start).ToArray();
            _start = newLine + 1;
            return line;
        }

        private async Task<T> NotSilentAsync<T>(Func<CancellationToken, Task<T>> read)
        {
            using var silence = CancellationTokenSource.CreateLinkedTokenSource(_closing.Token);
            silence.CancelAfter(MostSilence);
            try
            {
                return await read(silence.Token).ConfigureAwait(false);
            }
            catch (Exception error) when (error is OperationCanceledException || error is IOException)
            {
                _closing.Token.ThrowIfCancellationRequested();
                var isSilent = silence.IsCancellationRequested;
                // Something keeps back what the gateway sends.
                IsUnavailable |= isSilent && !WasHeard;
                var reason = isSilent ? "The stream is silent." : $"The stream broke: {error.Message}";
                throw new UnreachableException(reason, false, error);
            }
        }
    }
}

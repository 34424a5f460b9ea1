using System;
using System.IO;
using System.Net.Http;
using System.Net.Sockets;
using System.Security.Authentication;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Babelgate.Client.Generated;

namespace Babelgate.Client
{
    /// <summary>
    /// Sends requests with a time-out, reads answers whole, streams excepted, and throws <see cref="BabelgateException"/> unless they are
    /// of success. The hand-written and the generated part send their requests through it.
    /// </summary>
    internal sealed class GatewayHandler : DelegatingHandler
    {
        /// <summary>The property of a request with the TimeSpan that the gateway may wait before it answers.</summary>
        public const string Wait = "babelgate.wait";

        /// <summary>The property of a request whose answer has no end. The caller limits the time.</summary>
        public const string Streams = "babelgate.streams";

        private const int BufferBytes = 65_536;
        private readonly TimeSpan _timeout;

        public GatewayHandler(HttpMessageHandler inner, TimeSpan timeout) : base(inner)
        {
            _timeout = timeout;
        }

        protected override async Task<HttpResponseMessage> SendAsync(
            HttpRequestMessage request, CancellationToken cancellationToken)
        {
            var wait = request.Properties.TryGetValue(Wait, out var given) ? (TimeSpan)given : TimeSpan.Zero;
            using var limit = CancellationTokenSource.CreateLinkedTokenSource(cancellationToken);
            var streams = request.Properties.ContainsKey(Streams);
            if (!streams)
            {
                limit.CancelAfter(_timeout + wait);
            }
            HttpResponseMessage? response = null;
            using var body = new MemoryStream();
            try
            {
                response = await base.SendAsync(request, limit.Token).ConfigureAwait(false);
                if (streams && response.IsSuccessStatusCode)
                {
                    return response;
                }
                using var content = await response.Content.ReadAsStreamAsync().ConfigureAwait(false);
                await content.CopyToAsync(body, BufferBytes, limit.Token).ConfigureAwait(false);
            }
            catch (Exception error) when (IsOfTransport(error))
            {
                response?.Dispose();
                cancellationToken.ThrowIfCancellationRequested();
                var sent = response != null || limit.IsCancellationRequested || !IsOfConnecting(error);
                var reason = limit.IsCancellationRequested ? "the time is over" : error.Message;
                throw new UnreachableException($"No gateway answered: {reason.TrimEnd('.')}.", sent, error);
            }
            response.Content = new ByteArrayContent(body.ToArray());
            if (response.IsSuccessStatusCode)
            {
                return response;
            }
            using (response)
            {
                throw Refused(response, body.ToArray());
            }
        }

        private static bool IsOfTransport(Exception error) =>
            error is HttpRequestException
            || error is IOException
            || error is OperationCanceledException;

        /// <summary>Whether it is certain that nothing was sent.</summary>
        private static bool IsOfConnecting(Exception error) =>
            // SocketsHttpHandler gives up connecting by a cancellation of its own.
            error is OperationCanceledException
            || error.InnerException is SocketException
            || error.InnerException is AuthenticationException;

        private static ProblemException Refused(HttpResponseMessage response, byte[] body)
        {
            var status = (int)response.StatusCode;
            Problem? problem = null;
            try
            {
                problem = JsonSerializer.Deserialize<Problem>(body);
            }
            catch (JsonException)
            {
                // Something between the gateway and this client answered.
            }
            if (problem?.Code == LeaseLostException.LeaseLost)
            {
                return new LeaseLostException(status, problem);
            }
            return new ProblemException(status, problem, response.Headers.RetryAfter?.Delta);
        }
    }
}

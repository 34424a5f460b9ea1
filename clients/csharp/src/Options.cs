using System;
using System.Net.Http;
using System.Text.Json;

namespace Babelgate.Client
{
    /// <summary>Options of a <see cref="BabelgateClient"/>.</summary>
    public sealed class ClientOptions
    {
        private TimeSpan _timeout = TimeSpan.FromSeconds(30);

        /// <summary>The bearer token. Default: BABELGATE_TOKEN.</summary>
        public string? Token { get; set; }

        /// <summary>For one answer, beyond the time that a receive waits. Default: 30 s.</summary>
        public TimeSpan Timeout
        {
            get => _timeout;
            set => _timeout = Positive(value);
        }

        /// <summary>How long a failed call is repeated; zero: not at all. Default: 60 s.</summary>
        public TimeSpan RetryFor { get; set; } = TimeSpan.FromSeconds(60);

        /// <summary>How payloads are written and read. Default: members in camel case, read in any case.</summary>
        public JsonSerializerOptions JsonOptions { get; set; } = new JsonSerializerOptions
        {
            PropertyNameCaseInsensitive = true,
            PropertyNamingPolicy = JsonNamingPolicy.CamelCase,
        };

        /// <summary>What sends the requests, such as with a certificate. It is not disposed. Default: a handler of its own.</summary>
        public HttpMessageHandler? HttpHandler { get; set; }

        internal static TimeSpan Positive(TimeSpan value) =>
            value > TimeSpan.Zero ? value : throw new ArgumentOutOfRangeException(nameof(value), value, "It must be positive.");
    }

    /// <summary>Options of <see cref="BabelgateClient.ConsumeAsync"/>.</summary>
    public sealed class ConsumerOptions
    {
        private int _concurrency = 10;
        private TimeSpan _lease = TimeSpan.FromSeconds(60);

        /// <summary>Most messages at a time, 1 to 1,000; no more are leased. Default: 10.</summary>
        public int Concurrency
        {
            get => _concurrency;
            // One request prolongs all leases, and takes 1,000 tokens.
            set => _concurrency = value >= 1 && value <= 1000
                ? value
                : throw new ArgumentOutOfRangeException(nameof(value), value, "It must be 1 to 1,000.");
        }

        /// <summary>
        /// It is prolonged for as long as the handler runs. After a crash of this program the message is delivered again
        /// when it ends. Default: 60 s.
        /// </summary>
        public TimeSpan Lease
        {
            get => _lease;
            set => _lease = ClientOptions.Positive(value);
        }

        /// <summary>Of the long poll, at most 30 s. Default: 20 s.</summary>
        public TimeSpan Wait { get; set; } = TimeSpan.FromSeconds(20);

        /// <summary>
        /// Whether one open stream delivers the messages, instead of long polls. These follow where the gateway offers no
        /// streams. Default: false.
        /// </summary>
        public bool Stream { get; set; }

        /// <summary>How long a stop waits for running handlers. Default: 30 s.</summary>
        public TimeSpan Grace { get; set; } = TimeSpan.FromSeconds(30);

        /// <summary>
        /// Hears of failed handlers, lost leases, and a gateway that is away, each with its exception if there is one.
        /// Default: the standard error output.
        /// </summary>
        public Action<string, Exception?> Log { get; set; } = (text, error) =>
            Console.Error.WriteLine(
                error == null || error is BabelgateException ? $"babelgate: {text}" : $"babelgate: {text}: {error}");
    }
}

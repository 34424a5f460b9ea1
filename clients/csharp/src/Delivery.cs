using System;
using System.Collections.Generic;
using System.Linq;
using System.Text.Json;

namespace Babelgate.Client
{
    /// <summary>A received message. It is leased until <see cref="LeaseExpiresAt"/>.</summary>
    public sealed class Delivery
    {
        private readonly JsonSerializerOptions? _options;

        /// <summary>A delivery as the gateway sends it, also for tests of handlers.</summary>
        public Delivery(
            string queue,
            string ackToken,
            DateTimeOffset leaseExpiresAt,
            long attempts,
            bool redelivered,
            IReadOnlyDictionary<string, string> headers,
            JsonElement envelope,
            JsonSerializerOptions? jsonOptions = null,
            IReadOnlyDictionary<string, JsonElement>? brokerProperties = null)
        {
            Queue = queue;
            AckToken = ackToken;
            LeaseExpiresAt = leaseExpiresAt;
            Attempts = attempts;
            Redelivered = redelivered;
            Headers = headers;
            Envelope = envelope;
            BrokerProperties = brokerProperties ?? new Dictionary<string, JsonElement>();
            _options = jsonOptions;
        }

        /// <summary>The queue from which it was received.</summary>
        public string Queue { get; }

        /// <summary>Proves the lease.</summary>
        public string AckToken { get; }

        /// <summary>When the lease ends, unless it is extended.</summary>
        public DateTimeOffset LeaseExpiresAt { get; }

        /// <summary>The number of earlier deliveries that ended without an ack.</summary>
        public long Attempts { get; }

        /// <summary>Whether the message was delivered before.</summary>
        public bool Redelivered { get; }

        /// <summary>Native headers.</summary>
        public IReadOnlyDictionary<string, string> Headers { get; }

        /// <summary>By their names in the API, such as <c>SequenceNumber</c>; empty if the broker has none.</summary>
        public IReadOnlyDictionary<string, JsonElement> BrokerProperties { get; }

        /// <summary>The whole message, as it is on the queue.</summary>
        public JsonElement Envelope { get; }

        /// <summary><c>meta.id</c>: use it to detect duplicates.</summary>
        public string? Id => Envelope.TryGetProperty("meta", out var meta) ? Text(meta, "id") : null;

        /// <summary>The kind of the message.</summary>
        public string? Job => Text(Envelope, "job") ?? Text(Envelope, "urn");

        /// <summary>The payload. Numbers in it are as they were written.</summary>
        public JsonElement Data => Envelope.GetProperty("data");

        /// <summary>The id that all messages of one story share.</summary>
        public string? TraceId => Text(Envelope, "trace_id");

        /// <summary>The W3C trace context that travelled with the message.</summary>
        public string? Traceparent => Headers.TryGetValue("traceparent", out var text) ? text : null;

        /// <summary>The payload, read with <see cref="ClientOptions.JsonOptions"/>.</summary>
        /// <exception cref="JsonException">The payload is no <typeparamref name="T"/>.</exception>
        public T DataAs<T>() => JsonSerializer.Deserialize<T>(Data.GetRawText(), _options);

        internal static Delivery Of(string queue, JsonElement message, JsonSerializerOptions options)
        {
            var headers = message.GetProperty("headers").EnumerateObject();
            var properties = message.TryGetProperty("broker_properties", out var given)
                ? given.EnumerateObject()
                : Enumerable.Empty<JsonProperty>();
            return new Delivery(
                queue,
                message.GetProperty("ack_token").GetString(),
                DateTimeOffset.FromUnixTimeMilliseconds(message.GetProperty("lease_expires_at").GetInt64()),
                message.GetProperty("attempts").GetInt64(),
                message.GetProperty("redelivered").GetBoolean(),
                headers.ToDictionary(header => header.Name, header => header.Value.GetString()),
                message.GetProperty("envelope"),
                options,
                properties.ToDictionary(property => property.Name, property => property.Value));
        }

        private static string? Text(JsonElement parent, string name)
        {
            var isText = parent.TryGetProperty(name, out var member) && member.ValueKind == JsonValueKind.String;
            return isText ? member.GetString() : null;
        }
    }
}

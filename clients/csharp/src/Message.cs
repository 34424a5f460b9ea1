using System;
using System.Collections.Generic;
using System.Text.Json;

namespace Babelgate.Client
{
    /// <summary>A message to publish.</summary>
    public sealed class Message
    {
        /// <summary>A message with its kind, by convention a URN, and its payload, which must become a JSON object.</summary>
        public Message(string job, object data)
        {
            Job = job ?? throw new ArgumentNullException(nameof(job));
            Data = data ?? throw new ArgumentNullException(nameof(data));
        }

        /// <summary>The kind of the message.</summary>
        public string Job { get; }

        /// <summary>The payload. It is written with <see cref="ClientOptions.JsonOptions"/>.</summary>
        public object Data { get; }

        /// <summary>The id that all messages of one story share, by convention a UUID. Default: the gateway makes one.</summary>
        public string? TraceId { get; set; }

        /// <summary>Deliver it no sooner.</summary>
        public TimeSpan? Delay { get; set; }

        /// <summary>Deliver it no sooner than at this time. Excludes <see cref="Delay"/>.</summary>
        public DateTimeOffset? DeliverAt { get; set; }

        /// <summary>Dead-letter it if it is not delivered in this time.</summary>
        public TimeSpan? Ttl { get; set; }

        /// <summary>0 to 9, where the broker supports it: deliver it before others with a lower priority.</summary>
        public int? Priority { get; set; }

        /// <summary>Messages with the same key are delivered in their order, where the broker supports it.</summary>
        public string? OrderingKey { get; set; }

        /// <summary>Native headers, where the broker supports them.</summary>
        public IReadOnlyDictionary<string, string>? Headers { get; set; }

        /// <summary>By their names in the API, such as <c>TimeToLive</c>, where the broker supports them.</summary>
        public IReadOnlyDictionary<string, object>? BrokerProperties { get; set; }

        /// <summary>1 to 255 printable ASCII characters. Default: the client makes one.</summary>
        public string? IdempotencyKey { get; set; }

        /// <summary>The language of the producer, one of those of the envelope. Default: dotnet.</summary>
        public string Lang { get; set; } = "dotnet";

        /// <summary>Extensions by vendor, which become <c>meta.ext</c> of the envelope.</summary>
        public IReadOnlyDictionary<string, object?>? Ext { get; set; }

        internal byte[] Draft(string? key, JsonSerializerOptions options)
        {
            return Json.Write(writer =>
            {
                writer.WriteString("job", Job);
                writer.WritePropertyName("data");
                JsonSerializer.Serialize(writer, Data, Data.GetType(), options);
                Json.WriteText(writer, "trace_id", TraceId);
                writer.WriteStartObject("meta");
                writer.WriteString("lang", Lang);
                if (Ext != null)
                {
                    writer.WritePropertyName("ext");
                    JsonSerializer.Serialize(writer, Ext, options);
                }
                writer.WriteEndObject();
                Json.WriteSeconds(writer, "delay_seconds", Delay);
                if (DeliverAt != null)
                {
                    writer.WriteNumber("deliver_at", DeliverAt.Value.ToUnixTimeMilliseconds());
                }
                Json.WriteSeconds(writer, "ttl_seconds", Ttl);
                if (Priority != null)
                {
                    writer.WriteNumber("priority", Priority.Value);
                }
                Json.WriteText(writer, "ordering_key", OrderingKey);
                if (Headers != null)
                {
                    writer.WriteStartObject("headers");
                    foreach (var header in Headers)
                    {
                        writer.WriteString(header.Key, header.Value);
                    }
                    writer.WriteEndObject();
                }
                if (BrokerProperties != null)
                {
                    writer.WritePropertyName("broker_properties");
                    JsonSerializer.Serialize(writer, BrokerProperties);
                }
                Json.WriteText(writer, "idempotency_key", key);
            });
        }
    }
}

using System;
using System.Collections.Generic;
using System.Linq;
using System.Text.Json;

namespace Babelgate.Client
{
    /// <summary>One POST. The same bytes are sent each time, as an idempotency key requires.</summary>
    internal sealed class Call
    {
        public Call(string path, byte[] body)
        {
            Path = path;
            Body = body;
        }

        public string Path { get; }

        public byte[] Body { get; }

        public string? IdempotencyKey { get; set; }

        public string? Traceparent { get; set; }

        /// <summary>How long the gateway may wait before it answers, beyond the usual time-out.</summary>
        public TimeSpan Wait { get; set; }

        public Repeat Repeat { get; set; }
    }

    /// <summary>How requests are written.</summary>
    internal static class Calls
    {
        public const string NeedsNoKey = "idempotency_unsupported";

        public static Call Publish(string queue, byte[] draft, string? key, string? traceparent)
        {
            return new Call(Path(queue, "messages"), draft)
            {
                IdempotencyKey = key == null ? null : Quoted(key),
                Traceparent = traceparent,
                Repeat = key == null ? Repeat.UnlessWritten : Repeat.Always,
            };
        }

        public static Call Receive(string queue, int maxMessages, TimeSpan wait, TimeSpan? lease)
        {
            var body = Json.Write(writer =>
            {
                writer.WriteNumber("max_messages", maxMessages);
                Json.WriteSeconds(writer, "wait_seconds", wait);
                Json.WriteSeconds(writer, "lease_seconds", lease);
            });
            return new Call(Path(queue, "messages:receive"), body) { Wait = wait };
        }

        public static IReadOnlyList<Delivery> Deliveries(string queue, byte[] answer, JsonSerializerOptions options) =>
            Json.Read(answer, read => read
                .GetProperty("messages")
                .EnumerateArray()
                .Select(message => Delivery.Of(queue, message, options))
                .ToList());

        /// <summary>ack, nack, reject or extend.</summary>
        public static Call Settle(string action, IReadOnlyList<Delivery> deliveries, Action<Utf8JsonWriter>? members = null)
        {
            if (deliveries.Count == 0)
            {
                throw new ArgumentException("There is no message to settle.", nameof(deliveries));
            }
            var body = Json.Write(writer =>
            {
                writer.WriteStartArray("ack_tokens");
                foreach (var delivery in deliveries)
                {
                    writer.WriteStringValue(delivery.AckToken);
                }
                writer.WriteEndArray();
                members?.Invoke(writer);
            });
            return new Call(Path(deliveries[0].Queue, "messages:" + action), body);
        }

        public static void NotAttempted(Utf8JsonWriter writer) => writer.WriteBoolean("failed", false);

        /// <summary>The members of a nack or a reject that say why.</summary>
        public static Action<Utf8JsonWriter> Failed(string? error, string? exception, TimeSpan? delay = null) => writer =>
        {
            Json.WriteSeconds(writer, "delay_seconds", delay);
            if (error != null || exception != null)
            {
                writer.WriteStartObject("error");
                Json.WriteText(writer, "message", error);
                Json.WriteText(writer, "exception", exception);
                writer.WriteEndObject();
            }
        };

        /// <summary>The path of an action on a queue, relative to the gateway's URL.</summary>
        public static string Path(string queue, string action) => $"queues/{Uri.EscapeDataString(queue)}/{action}";

        public static string NewKey() => Guid.NewGuid().ToString();

        /// <summary>The key as a structured string of HTTP.</summary>
        private static string Quoted(string key)
        {
            if (key.Length < 1 || key.Length > 255 || key.Any(letter => letter < ' ' || letter > '~'))
            {
                throw new ArgumentException("An idempotency key has 1 to 255 printable ASCII characters.", nameof(key));
            }
            return '"' + key.Replace("\\", "\\\\").Replace("\"", "\\\"") + '"';
        }
    }
}

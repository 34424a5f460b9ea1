using System;
using System.Collections.Generic;
using System.Linq;
using System.Text.Json;
using System.Text.RegularExpressions;

namespace Babelgate.Client
{
    /// <summary>One request. The same bytes are sent each time, as an idempotency key requires.</summary>
    internal sealed class Call
    {
        /// <summary>A POST, or without a body a GET.</summary>
        public Call(string path, byte[]? body)
        {
            Path = path;
            Body = body;
        }

        public string Path { get; }

        public byte[]? Body { get; }

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

        private static readonly Regex Visible = new Regex(@"^[!-~]+\z");
        private static readonly Regex OfGateway = new Regex(
            @"^https?://[^\x00-\x20\x7f/?#:][^\x00-\x20\x7f/?#]*(/[^\x00-\x20\x7f?#]*)?\z", RegexOptions.IgnoreCase);

        public static Call Publish(string queue, byte[] draft, string? key, string? traceparent)
        {
            return new Call(Path(queue, "messages"), draft)
            {
                IdempotencyKey = key == null ? null : Quoted(key),
                Traceparent = Traced(traceparent),
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

        public static Call Stream(string queue, int maxInFlight, TimeSpan lease)
        {
            var query = FormattableString.Invariant($"?max_in_flight={maxInFlight}&lease_seconds={lease.TotalSeconds}");
            return new Call(Path(queue, "messages:stream") + query, null);
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

        /// <summary>The trace context, which a header must be able to carry.</summary>
        public static string? Traced(string? traceparent)
        {
            if (traceparent != null && !Visible.IsMatch(traceparent))
            {
                throw new ArgumentException(
                    "A traceparent is visible ASCII, without spaces and line ends.", nameof(traceparent));
            }
            return traceparent;
        }

        /// <summary>The base of all paths, from a URL that can be that of a gateway.</summary>
        public static Uri GatewayUrl(string url)
        {
            if (!OfGateway.IsMatch(url))
            {
                throw new ArgumentException(
                    "The URL of the gateway begins with http:// or https:// and names a host, such as http://127.0.0.1:8080,"
                    + " without spaces, line ends, query and fragment.",
                    nameof(url));
            }
            return new Uri(url.TrimEnd('/') + "/");
        }

        /// <summary>The token, which a header must be able to carry. The text of the error does not show it.</summary>
        public static string Token(string token)
        {
            if (!Visible.IsMatch(token))
            {
                throw new ArgumentException(
                    "The token is visible ASCII, without spaces and line ends; one that was read from a file often ends in a"
                    + " line feed.",
                    nameof(token));
            }
            return token;
        }

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

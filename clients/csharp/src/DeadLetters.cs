using System;
using System.Collections.Generic;
using System.Globalization;
using System.Linq;
using System.Text.Json;
using System.Threading;
using System.Threading.Tasks;
using Babelgate.Client.Generated;

namespace Babelgate.Client
{
    /// <summary>
    /// The dead letters of one queue. Methods throw <see cref="ProblemException"/> and
    /// <see cref="UnreachableException"/>. A redrive, a deletion and a purge are repeated only if they changed nothing.
    /// </summary>
    public sealed class DeadLetters
    {
        // How long a gateway may redrive before it answers.
        private static readonly TimeSpan RedriveTime = TimeSpan.FromSeconds(60);

        private static readonly JsonSerializerOptions WithoutNulls = new JsonSerializerOptions { IgnoreNullValues = true };

        private readonly BabelgateClient _client;
        private readonly string _queue;

        internal DeadLetters(BabelgateClient client, string queue)
        {
            _client = client;
            _queue = queue;
        }

        /// <summary>A page of dead letters, oldest first.</summary>
        /// <param name="filter">Those that meet all of its conditions; its times are in Unix milliseconds.</param>
        /// <param name="limit">1 to 1,000.</param>
        /// <param name="cursor">The NextCursor of the page before.</param>
        /// <param name="cancellationToken">Ends the call.</param>
        public Task<DeadLetterPage> ListAsync(
            DeadLetterFilter? filter = null,
            int? limit = null,
            string? cursor = null,
            CancellationToken cancellationToken = default)
        {
            var query = Query(
                ("job", filter?.Job),
                ("reason", filter?.Reason),
                ("before", Number(filter?.Before)),
                ("after", Number(filter?.After)),
                ("trace_id", filter?.TraceId),
                ("limit", Number(limit)),
                ("cursor", cursor));
            return SendAsync<DeadLetterPage>("dead-letters" + query, null, cancellationToken);
        }

        /// <summary>One dead letter.</summary>
        /// <param name="letterId">The LetterId of a listed dead letter.</param>
        /// <param name="cursor">Where the search begins. Default: at the oldest.</param>
        /// <param name="cancellationToken">Ends the call.</param>
        public Task<DeadLetter> ShowAsync(
            string letterId, string? cursor = null, CancellationToken cancellationToken = default) =>
            SendAsync<DeadLetter>(Letter(letterId, "", cursor), null, cancellationToken);

        /// <summary>Sends dead letters back: each is published, and removed when the broker has stored it.</summary>
        /// <param name="order">Which and how: <c>new RedriveRequest { Limit = 100 }</c>.</param>
        /// <param name="cancellationToken">Ends the call; the gateway may go on.</param>
        /// <exception cref="ArgumentException">
        /// A redrive in the background answers with a job, which <see cref="BabelgateClient.Api"/> offers.
        /// </exception>
        public Task<RedriveResult> RedriveAsync(RedriveRequest order, CancellationToken cancellationToken = default)
        {
            if (order.Background == true)
            {
                throw new ArgumentException("A redrive in the background answers with a job: use Api.", nameof(order));
            }
            return SendAsync<RedriveResult>("dead-letters:redrive", order, cancellationToken, RedriveTime);
        }

        /// <summary>Sends one dead letter back, edited or unchanged.</summary>
        /// <param name="letterId">The LetterId of a listed dead letter.</param>
        /// <param name="order">How; default: unchanged, to its queue.</param>
        /// <param name="cursor">Where the search begins. Default: at the oldest.</param>
        /// <param name="cancellationToken">Ends the call; the message may be sent all the same.</param>
        public Task<RedrivenLetter> RedriveOneAsync(
            string letterId,
            RedriveDeadLetterRequest? order = null,
            string? cursor = null,
            CancellationToken cancellationToken = default)
        {
            var path = Letter(letterId, ":redrive", cursor);
            return SendAsync<RedrivenLetter>(path, order ?? new RedriveDeadLetterRequest(), cancellationToken);
        }

        /// <summary>Removes 1 to 1,000 dead letters; one result for each.</summary>
        public Task<Removal> DeleteAsync(IReadOnlyList<string> letterIds, CancellationToken cancellationToken = default) =>
            SendAsync<Removal>(
                "dead-letters:delete", new DeleteDeadLettersRequest { Ids = letterIds }, cancellationToken);

        /// <summary>Removes all dead letters, or only counts them.</summary>
        /// <param name="dryRun">Only count.</param>
        /// <param name="cancellationToken">Ends the call; they may be removed all the same.</param>
        public Task<PurgeResult> PurgeAsync(bool dryRun = false, CancellationToken cancellationToken = default) =>
            SendAsync<PurgeResult>("dead-letters:purge", new PurgeRequest { DryRun = dryRun }, cancellationToken);

        private async Task<T> SendAsync<T>(
            string action, object? order, CancellationToken cancellationToken, TimeSpan wait = default)
        {
            var body = order == null ? null : JsonSerializer.SerializeToUtf8Bytes(order, order.GetType(), WithoutNulls);
            var call = new Call(Calls.Path(_queue, action), body)
            {
                Wait = wait,
                Repeat = order == null ? Repeat.Always : Repeat.UnlessWritten,
            };
            return Json.Read<T>(await _client.CallAsync(call, cancellationToken).ConfigureAwait(false));
        }

        private static string Letter(string letterId, string verb, string? cursor) =>
            $"dead-letters/{Uri.EscapeDataString(letterId)}{verb}{Query(("cursor", cursor))}";

        private static string? Number(long? value) => value?.ToString(CultureInfo.InvariantCulture);

        private static string Query(params (string Name, string? Value)[] parameters)
        {
            var given = parameters
                .Where(each => each.Value != null)
                .Select(each => $"{each.Name}={Uri.EscapeDataString(each.Value!)}")
                .ToList();
            return given.Count == 0 ? "" : "?" + string.Join("&", given);
        }
    }
}

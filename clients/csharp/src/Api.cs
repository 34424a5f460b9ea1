using System.Text.Json;

namespace Babelgate.Client.Generated
{
    /// <summary>
    /// The operations of the API. They throw <see cref="ProblemException"/> and <see cref="UnreachableException"/>, as
    /// those of <see cref="BabelgateClient"/> do.
    /// </summary>
    public partial class Api
    {
        // What is left out of a request is not sent.
        partial void UpdateJsonSerializerSettings(JsonSerializerOptions settings) => settings.IgnoreNullValues = true;
    }
}

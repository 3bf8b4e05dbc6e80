// TcpListener and TcpClient of .NET, for the matrix of programs.
//
// serve HOST PORT   gives back what it is sent, on a thread for each connection
// ask HOST PORT     ten connections at once, and what came back

using System;
using System.IO;
using System.Linq;
using System.Net;
using System.Net.Sockets;
using System.Threading;
using System.Threading.Tasks;

static class Echo
{
    static void Main(string[] words)
    {
        var address = IPAddress.Parse(words[1]);
        var port = int.Parse(words[2]);
        if (words[0] == "serve")
            Serve(address, port);
        else
            Ask(address, port);
    }

    static void Serve(IPAddress address, int port)
    {
        var listener = new TcpListener(address, port);
        listener.Start();
        while (true)
        {
            var connection = listener.AcceptTcpClient();
            new Thread(() =>
            {
                using (connection)
                    connection.GetStream().CopyTo(connection.GetStream());
            }).Start();
        }
    }

    static void Ask(IPAddress address, int port)
    {
        try
        {
            var all = Enumerable.Range(1, 10).Select(number => One(address, port, number)).ToArray();
            Task.WaitAll(all);
            Console.WriteLine(all.Count(one => one.Result) + " came back");
        }
        catch (AggregateException error)
        {
            Console.WriteLine(((SocketException)error.InnerException).SocketErrorCode);
        }
    }

    static async Task<bool> One(IPAddress address, int port, int number)
    {
        using (var client = new TcpClient())
        {
            await client.ConnectAsync(address, port);
            var sent = Enumerable.Repeat((byte)number, number * 100000).ToArray();
            var received = new MemoryStream();
            var stream = client.GetStream();
            var receiving = stream.CopyToAsync(received);
            await stream.WriteAsync(sent, 0, sent.Length);
            client.Client.Shutdown(SocketShutdown.Send);
            await receiving;
            return received.ToArray().SequenceEqual(sent);
        }
    }
}
